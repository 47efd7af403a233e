"""The checklist as a whole: what a waiver does, and which categories nothing was shown for."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import repro_gate.checks
from repro_gate.checks import ALL, run_checks, run_static, uncovered
from repro_gate.checks.interface import (
    CATEGORIES,
    CHECKOUT,
    RECORDED,
    Check,
    CheckResult,
    Evidence,
    Finding,
    check,
    failed,
)
from repro_gate.errors import UsageError
from repro_gate.spec.model import Checklist, Waiver
from repro_gate.spec.schema import schema
from tests.checks.conftest import lines_of
from tests.support.built_traces import evidence, run, spec, training

TODAY = date(2026, 11, 21)


def result_of(check: str, *waivers: Waiver, profile: str = "strict", **found: Any) -> CheckResult:
    """One check's result under these waivers; `severity` is that of the spec."""
    checklist = Checklist(profile, waivers, found.pop("severity", {}))
    results = run_checks(evidence(spec=spec(checklist=checklist), **found), TODAY)
    return next(item for item in results if item.id == check)


def test_every_check_has_one_id_its_category_a_place_in_the_schema_and_its_tests() -> None:
    results, ids = run_checks(evidence(), TODAY), [item.id for item in ALL]
    assert sorted({item.id for item in results}) == sorted(ids) and len(results) == len(ALL)
    assert all(item.id.startswith(f"{item.category}/") for item in results)
    assert {item.category for item in results} == set(CATEGORIES)
    document: Any = schema()
    assert sorted(document["$defs"]["check-id"]["enum"]) == sorted(ids)
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert not [item.id for item in ALL if f" {item.look.__name__}(" not in texts]


def test_static_checks_are_those_that_need_the_checkout_alone() -> None:
    waived = Checklist("strict", (Waiver("code/commit", "vendored"),))
    found = run_static(evidence(spec=spec(checklist=waived), commit=None), TODAY)
    assert [item.id for item in found] == [item.id for item in ALL if item.needs == CHECKOUT]
    assert next(item for item in found if item.id == "code/commit").status == "waived"


@pytest.mark.parametrize(
    "error",
    [
        UsageError("git cannot read it", remedy="see git status"),
        PermissionError(13, "Permission denied", "x"),
    ],
)
def test_a_check_that_cannot_look_fails_and_the_others_still_speak(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(_: Evidence) -> Finding:
        raise error

    broken: Check = check("code/clean", "It looks.", CHECKOUT)(look)
    monkeypatch.setattr(repro_gate.checks, "ALL", (broken, ALL[0]))
    found, other = run_checks(evidence(), TODAY)
    assert (
        found.status == "fail"
        and found.message.startswith("it could not look: ")
        and other.status == "pass"
    )
    assert found.remedy == getattr(error, "remedy", "")


@pytest.mark.parametrize("severity", ["fail", "warn"])
@pytest.mark.parametrize("check", ["code/commit", "env/lockfile"])
def test_a_severity_of_the_spec_goes_over_the_profile(check: str, severity: str) -> None:
    found = result_of(check, profile="basic", severity={check: severity}, commit=None)
    assert found.status == severity


ENDED = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("waived", "until", "check", "commit", "status"),
    [
        ("code/commit", None, "code/commit", None, "waived"),
        ("code/commit", TODAY, "code/commit", None, "waived"),
        ("code/commit", ENDED, "code/commit", None, "fail"),
        ("code/clean", None, "code/commit", None, "fail"),
        ("env/image-digest", None, "env/image-digest", None, "waived"),
        # what needs no waiver has its own word
        ("code/commit", None, "code/commit", "a" * 40, "pass"),
        ("code/commit", ENDED, "code/commit", "a" * 40, "pass"),
        ("data/checksums", None, "data/checksums", None, "skip"),
        ("data/checksums", ENDED, "data/checksums", None, "skip"),
    ],
)
def test_a_waiver_holds_for_its_check_through_its_last_day(
    waived: str, until: date | None, check: str, commit: str | None, status: str
) -> None:
    found = result_of(check, Waiver(waived, "vendored", until), commit=commit)
    assert found.status == status
    assert ("its waiver ended on 2026-11-20" in found.message) is (until == ENDED)


def test_what_is_not_declared_can_be_waived_in_the_basic_profile_too() -> None:
    waiver = Waiver("env/image-digest", "bare metal")
    assert result_of("env/image-digest", waiver, profile="basic").status == "waived"


def test_categories_without_a_check_that_passed_are_uncovered() -> None:
    assert uncovered(run_checks(evidence(), TODAY)) == ("data", "env", "random-state", "hardware")
    a = training(settings={"torch.use_deterministic_algorithms": True})
    assert uncovered(run_checks(evidence(runs=(run("deterministic-1", a),)), TODAY)) == ()
    assert uncovered(()) == CATEGORIES
    statuses = ("warn", "fail", "skip", "waived", "pass")
    results = [
        CheckResult(id=f"{name}/x", category=name, status=status, message="")
        for name, status in zip(CATEGORIES, statuses, strict=True)
    ]
    assert uncovered(results) == CATEGORIES[:4], "what a person waived shows nothing"
    more = CheckResult(id="random-state/y", category="random-state", status="pass", message="")
    assert uncovered([*results, more]) == CATEGORIES[:3]


def test_long_evidence_is_cut_and_counted() -> None:
    def recorded(count: int) -> tuple[str, ...]:
        seen = [str(number) for number in range(count)]
        look = Check("code/x", "x", CHECKOUT, False, lambda _: failed("x", seen, "x"))
        return lines_of(look(evidence()))

    assert len(recorded(RECORDED)) == RECORDED and recorded(RECORDED)[-1] == str(RECORDED - 1)
    assert recorded(RECORDED + 9)[-2:] == (str(RECORDED - 2), "… and 10 more")
