"""A user of its own is had or refused, never quietly less; on a laptop nobody is nagged."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.sandbox import selection
from repro_gate.sandbox.identity import OWN_USER, SAME_USER, UID
from repro_gate.sandbox.reexec import TAKEN_OUT
from repro_gate.sandbox.selection import choose
from tests.support.starting import needs_own_user


@needs_own_user
def test_the_images_variable_gives_training_a_user_of_its_own() -> None:
    chosen = choose({"REPRO_GATE_SANDBOX": "own-user", "GITHUB_ACTIONS": "true"})
    assert (chosen.level, chosen.uid) == (OWN_USER, UID)
    assert chosen.own_user and chosen.notes == ()


@pytest.mark.parametrize(
    "environment",
    [{"REPRO_GATE_SANDBOX": ""}, {"REPRO_GATE_SANDBOX": "same-user"}, {TAKEN_OUT: "A"}],
)
def test_a_laptop_keeps_one_user_without_a_word(environment: Mapping[str, str]) -> None:
    chosen = choose(environment)
    assert (chosen.level, chosen.uid, chosen.notes, chosen.own_user) == (SAME_USER, 0, (), False)


@pytest.mark.parametrize("name", ["GITHUB_ACTIONS", "CI"])
def test_in_ci_one_user_is_said(name: str) -> None:
    (note,) = choose({name: "true"}).notes
    assert "training ran as the gate's own user" in note and "taken out" not in note
    (note,) = choose({name: "true", TAKEN_OUT: "HF_TOKEN,INPUT_TOKEN"}).notes
    assert "HF_TOKEN, INPUT_TOKEN had been taken out of its environment" in note


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(UsageError, match="'root' is no sandbox"):
        choose({"REPRO_GATE_SANDBOX": "root"})


def refused() -> str:
    with pytest.raises(Inconclusive) as raised:
        choose({"REPRO_GATE_SANDBOX": "own-user"})
    assert "REPRO_GATE_SANDBOX=same-user" in raised.value.remedy
    return raised.value.message


def test_without_root_and_on_another_system_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "platform", "linux")
    assert refused().endswith("the gate is user 1000, not root")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "it needs Linux" in refused()


@needs_own_user
def test_what_a_container_takes_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = 0xA80425FB  # the capabilities that Docker grants by default
    status = {"CapEff": [f"{docker & ~(1 << 7 | 1 << 5):x}"]}
    monkeypatch.setattr(selection, "status_of", lambda pid: status)
    assert refused().endswith("the gate lacks CAP_KILL, CAP_SETUID")
    status["CapEff"] = [f"{docker:x}"]
    assert choose({"REPRO_GATE_SANDBOX": "own-user"}).own_user
    # a namespace that maps too few users
    said = ["/bin/sh", "-c", "echo setpriv: setgroups failed >&2; exit 1"]
    monkeypatch.setattr(selection, "command", lambda *_: (said, {}))
    assert refused().endswith("setpriv: setgroups failed")
