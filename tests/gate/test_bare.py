"""Claims about the one run without the gate that a crash asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from repro_gate.gate import bare
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.launch import Run
from repro_gate.runs.progress import Watch
from tests.support.built_traces import run, spec

Asked = Callable[..., tuple[Run | None, list[float]]]
SPEC = spec()


def crashed(code: int | None = 1, **ended: Any) -> Run:
    found = run("deterministic-1", outcome="crashed", reason_id="run/crashed")
    return replace(
        found, ended=replace(found.ended, **{"exit_code": code, "seconds": 20.0, **ended})
    )


CRASHED = crashed()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What comes of these runs, and the time limits of the bare runs that were started."""

    def ask(
        *runs: Run, came: Run | BaseException = CRASHED, **more: Any
    ) -> tuple[Run | None, list[float]]:
        limits: list[float] = []

        def launch(limited: Any, *_: object) -> Run:
            limits.append(limited.train.timeout)
            if isinstance(came, BaseException):
                raise came
            return came

        monkeypatch.setattr(bare, "launch", launch)
        monkeypatch.setattr(bare, "site_of", lambda *_: None)
        results = SimpleNamespace(**{"runs": runs, "comparisons": {}, "interrupted": "", **more})
        return bare.bare_run(SPEC, cast(Any, None), cast(Any, results), Watch()), limits

    return ask


def test_only_a_crash_that_left_nothing_to_compare_costs_one_more_run(
    asked: Asked,
) -> None:
    assert asked(crashed()) == (crashed(), [60.0]), "three times what the crash took"
    assert asked(crashed(), crashed())[1] == [60.0] and asked(crashed(seconds=1.0))[1] == [30.0]
    assert asked(crashed(seconds=1e6))[1] == [SPEC.train.timeout]
    killed = replace(crashed(code=None, signal=11), outcome="killed", reason_id="run/killed")
    assert asked(killed)[1] == [60.0]
    for runs in (
        (),
        (run("deterministic-1"), crashed()),
        (replace(crashed(), reason_id=NO_DETERMINISTIC),),
        (crashed(code=127),),
        (crashed(code=None),),
        (crashed(code=0),),
        (replace(crashed(), outcome="timed-out", reason_id="run/timeout"),),
    ):
        assert asked(*runs) == (None, [])
    assert asked(crashed(), interrupted="the gate was interrupted") == (None, [])
    assert asked(crashed(), comparisons={42: "diverged"}) == (None, [])


def test_a_bare_run_that_says_nothing_is_not_told_of(
    asked: Asked,
) -> None:
    killed, full = crashed(signal=9, code=None), crashed(out_of_memory=True)
    for came in (KeyboardInterrupt(), OSError("no space"), killed, full):
        assert asked(crashed(), came=came) == (None, [60.0])
    late = crashed(signal=9, code=None, timed_out=True)
    assert asked(crashed(), came=late)[0] == late
