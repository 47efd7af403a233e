"""The checklist as a whole: what a waiver does, and which categories nothing was shown for."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checks import ALL, STATIC, code, data, run_checks
from repro_gate.checks.interface import (
    CATEGORIES,
    CHECKOUT,
    RECORDED,
    CheckResult,
    Evidence,
    Finding,
    check,
    failed,
)
from repro_gate.errors import UsageError
from repro_gate.spec.model import Checklist, Waiver
from repro_gate.spec.schema import schema
from tests.checks.conftest import outcome
from tests.support.built_traces import evidence, spec

TODAY, YESTERDAY = date(2026, 11, 21), date(2026, 11, 20)


def result_of(check: str, *waivers: Waiver, profile: str = "strict", **facts: Any) -> CheckResult:
    """Return one check's result under these waivers; `severity` is that of the spec."""
    checklist = Checklist(profile, waivers, facts.pop("severity", {}))
    results = run_checks(evidence(spec=spec(checklist=checklist), **facts), TODAY)
    return next(item for item in results if item.id == check)


def test_every_check_has_one_id_its_category_a_place_in_the_schema_and_its_tests() -> None:
    results, ids = run_checks(evidence(), TODAY), [item.id for item in ALL]
    assert [item.id for item in results] == ids and len(set(ids)) == len(ids)
    assert all(item.id.startswith(f"{item.category}/") for item in results)
    assert {item.category for item in results} == set(CATEGORIES)
    document: Any = schema()
    assert sorted(document["$defs"]["check-id"]["enum"]) == sorted(ids)
    words = re.findall(r"\w+", "".join(map(Path.read_text, Path(__file__).parent.glob("test_*"))))
    assert not [item.id for item in ALL if item.look.__name__ not in words]


@pytest.mark.parametrize(
    "error",
    [UsageError("git cannot read it", remedy="see git status"), PermissionError(13, "denied")],
)
def test_a_check_that_cannot_look_fails_and_the_others_still_speak(error: Exception) -> None:
    @check("code/clean", "It looks.", CHECKOUT)
    def broken(_: Evidence) -> Finding:
        raise error

    lenient = spec(checklist=Checklist(severity={"code/clean": "warn"}))
    result, other = run_checks(evidence(spec=lenient), TODAY, (broken, ALL[0]))
    assert (result.status, other.status) == ("fail", "pass")
    assert str(error) in result.message and result.remedy == getattr(error, "remedy", "")


@pytest.mark.parametrize("severity", ["fail", "warn"])
@pytest.mark.parametrize("check", ["code/commit", "env/lockfile"])
def test_a_severity_of_the_spec_goes_over_the_profile(check: str, severity: str) -> None:
    result = result_of(check, profile="basic", severity={check: severity}, commit=None)
    assert result.status == severity


def test_a_waiver_holds_for_its_check_through_its_last_day() -> None:
    for waived, until, name, commit, status in (
        ("code/commit", None, "code/commit", None, "waived"),
        ("code/commit", TODAY, "code/commit", None, "waived"),
        ("code/commit", YESTERDAY, "code/commit", None, "fail"),
        ("env/image-digest", None, "env/image-digest", None, "waived"),
        # what needs no waiver has its own word
        ("code/commit", None, "code/commit", "a" * 40, "pass"),
        ("code/commit", YESTERDAY, "code/commit", "a" * 40, "pass"),
        ("data/checksums", None, "data/checksums", None, "skip"),
    ):
        result = result_of(name, Waiver(waived, "vendored", until), commit=commit)
        assert result.status == status
        assert (str(YESTERDAY) in result.message) is (until == YESTERDAY)
    waiver = Waiver("env/image-digest", "bare metal")
    assert result_of("env/image-digest", waiver, profile="basic").status == "waived"
    waived = Checklist("strict", (Waiver("code/commit", "vendored"),))
    results = run_checks(evidence(spec=spec(checklist=waived), commit=None), TODAY, STATIC)
    assert [(item.id, item.status) for item in results[:1]] == [("code/commit", "waived")]
    assert len(results) == len(STATIC) < len(ALL)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_long_evidence_is_cut_and_counted(more: int) -> None:
    texts = [str(number) for number in range(RECORDED + more)]
    look = check("code/x", "x", CHECKOUT)(lambda _: failed("x", texts, "x"))
    last = "… and 2 more" if more > 0 else texts[-1]
    assert outcome(look, evidence())[1] == (*texts[: RECORDED - 1][: len(texts) - 1], last)


def test_without_runs_or_git_there_is_nothing_to_show() -> None:
    of_git = (code.submodules_present, code.lfs_resolved, code.spec_tracked)
    of_traces = (
        data.no_network,
        data.no_undeclared_reads,
        data.no_leftovers,
        data.revisions_pinned,
    )
    random_state = [item for item in ALL if item.id.startswith("random-state/")]
    for look in (*of_git, *of_traces, *random_state):
        assert look(evidence()).status == "skip", look.id
