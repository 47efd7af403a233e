"""The checklist as a whole: what a waiver does, and which categories nothing was shown for."""

from __future__ import annotations

from datetime import date

import pytest

from repro_gate.checks import ALL, run_checks, uncovered
from repro_gate.checks.interface import CATEGORIES, CheckResult, shortened
from repro_gate.spec.model import Checklist, Waiver
from tests.analysis.builders import evidence, run, spec, training

TODAY = date(2026, 11, 21)


def result_of(check: str, waiver: Waiver | None, **found: object) -> CheckResult:
    """One check's result under one waiver."""
    results = run_checks(evidence(spec=spec(checklist=Checklist("strict", (waiver,) if waiver else ())), **found), TODAY)
    return next(item for item in results if item.id == check)


def test_every_check_says_its_category_and_one_id() -> None:
    results = run_checks(evidence(), TODAY)
    assert len({item.id for item in results}) == len(results) == len(ALL)
    assert all(item.id.startswith(f"{item.category}/") for item in results)
    assert {item.category for item in results} == set(CATEGORIES)


@pytest.mark.parametrize(("until", "status"), [(None, "waived"), (TODAY, "waived"), (date(2026, 11, 20), "fail")])
def test_a_waiver_holds_through_its_last_day(until: date | None, status: str) -> None:
    assert result_of("code/commit", None, commit=None).status == "fail"
    result = result_of("code/commit", Waiver("code/commit", "vendored", until), commit=None)
    assert result.status == status
    assert ("vendored" if status == "waived" else "its waiver ended on 2026-11-20") in result.message


def test_a_waiver_of_another_check_changes_nothing() -> None:
    assert result_of("code/commit", Waiver("code/clean", "x"), commit=None).status == "fail"


def test_a_passing_check_is_not_waived() -> None:
    assert result_of("code/commit", Waiver("code/commit", "x")).status == "pass"
    assert result_of("code/commit", Waiver("code/commit", "x", date(2020, 1, 1))).status == "pass"


def test_a_skipped_check_is_not_waived() -> None:
    assert result_of("data/checksums", Waiver("data/checksums", "x")).status == "skip"


def test_categories_without_a_check_that_passed_are_uncovered() -> None:
    assert uncovered(run_checks(evidence(), TODAY)) == ("data", "env", "random-state", "hardware")
    a = training(settings={"torch.use_deterministic_algorithms": True})
    assert uncovered(run_checks(evidence(runs=(run("deterministic-1", a),)), TODAY)) == ()
    assert uncovered(()) == CATEGORIES
    statuses = ("warn", "fail", "skip", "pass", "waived")
    assert (
        uncovered([CheckResult(f"{name}/x", name, status, "") for name, status in zip(CATEGORIES, statuses, strict=True)]) == CATEGORIES[:3]
    )


def test_long_evidence_is_shortened_and_counted() -> None:
    assert shortened(["a", "b"]) == ("a", "b")
    assert shortened([str(i) for i in range(12)])[-2:] == ("9", "… and 2 more")
