"""Claims about `report.findings`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks.interface import CheckResult, EvidenceLine
from repro_gate.report.exports import workflow_commands
from repro_gate.report.findings import (
    LOCATIONS,
    WEAKENED_ID,
    address,
    findings,
    inside,
    located,
)
from repro_gate.report.model import BaseFinding, Origin, Reason, Report, View, WeakenedCheck
from repro_gate.trace.fields import Location
from tests.support import reports

_ENTROPY = CheckResult(
    id="random-state/os-entropy",
    category="random-state",
    status="fail",
    message="the runs diverged, and training code drew from the operating system's entropy",
    evidence=(
        EvidenceLine("rng = default_rng()", Location("src/train.py", 41)),
        EvidenceLine("random.Random()", Location("src/data.py", 7)),
    ),
    remedy="seed it from the run's seed",
)
_REASON = Reason("random-state/os-entropy", "the same, with its evidence", "seed it")
_PLAIN = replace(reports.FAIL, checklist=(), reasons=reports.FAIL.reasons[:1])


def _at(spec: str, report: Report) -> Report:
    return replace(report, subject=replace(report.subject, spec=spec))


def test_a_failed_check_is_an_error_on_each_line_that_its_evidence_names_and_a_pass_is_none() -> (
    None
):
    found = findings(_with(_ENTROPY, reasons=(_REASON,)))
    assert [(item.level, item.location) for item in found] == [
        ("error", Location("src/train.py", 41)),
        ("error", Location("src/data.py", 7)),
    ]
    assert found[0].id == "random-state/os-entropy" and found[0].detail == str(_ENTROPY.evidence[0])
    assert (found[0].message, found[0].remedy) == (_ENTROPY.message, _ENTROPY.remedy)
    quiet = tuple(replace(_ENTROPY, status=status) for status in ("pass", "skip", "waived"))
    assert findings(_with(*quiet)) == findings(replace(reports.PASS, checklist=())) == ()


def _with(*checks: CheckResult, reasons: tuple[Reason, ...] = ()) -> Report:
    return replace(reports.FAIL, checklist=checks, reasons=reasons)


def test_a_reason_that_names_no_line_stands_at_the_spec() -> None:
    (found,) = findings(_PLAIN)
    assert (found.level, found.location, found.id) == ("error", None, "determinism/diverged")
    assert workflow_commands(_at("jobs/repro.yml", _PLAIN)).startswith(
        "::error title=Repro Gate%3A determinism/diverged,file=jobs/repro.yml::"
    )


def test_the_divergence_is_one_error_on_the_line_of_its_cause() -> None:
    reasons = (reports.FAIL.reasons[0], _REASON)
    report = replace(reports.EXPLAINED, checklist=(_ENTROPY,), reasons=reasons)
    first, other = workflow_commands(report).splitlines()
    assert "error title=Repro Gate%3A determinism/diverged,file=src/train.py,line=41::" in first
    assert "Confirmed: with that draw held fixed" in first
    assert "error title=Repro Gate%3A random-state/os-entropy,file=src/data.py,line=7::" in other


def test_a_cause_in_a_notebook_stands_at_the_notebook_and_hides_no_other_line_of_it() -> None:
    """The lines of the file are those of its JSON: none of them is that of a cell."""
    cause = replace(reports.WHY, file="nb/fit.ipynb#cell 2", line=3)
    other = replace(
        _ENTROPY, evidence=(EvidenceLine("random.Random()", Location("nb/fit.ipynb#cell 4", 1)),)
    )
    report = replace(_PLAIN, diagnosis=cause, checklist=(other,))
    found = findings(report)
    assert [(item.id, item.location) for item in found] == [
        ("determinism/diverged", Location("nb/fit.ipynb")),
        ("random-state/os-entropy", Location("nb/fit.ipynb")),
    ]
    assert "in nb/fit.ipynb, cell 2, line 3 drew from the operating system" in found[0].detail
    origin = Origin(repository="a/b", head_sha="1" * 40, run_id=1, run_attempt=1)
    assert address(replace(report, origin=origin), View(), cause).endswith("/nb/fit.ipynb")


@pytest.mark.parametrize(
    "file", ["", "/etc/passwd", "../train.py", "a\x1b.py", "../a.ipynb#cell 1"]
)
def test_a_cause_that_names_no_file_of_the_checkout_stands_at_the_spec(file: str) -> None:
    (found,) = findings(replace(_PLAIN, diagnosis=replace(reports.WHY, file=file)))
    assert (found.id, found.location) == ("determinism/diverged", None)


def test_errors_come_before_what_is_weakened_and_warnings_last() -> None:
    weakened = (WeakenedCheck("determinism.allow", "more is allowed", Location("repro.yml", 12)),)
    base = BaseFinding("origin/main", reports.COMMIT, "head", weakened)
    warns = replace(_ENTROPY, id="env/lockfile", status="warn", evidence=())
    report = replace(_with(warns, _ENTROPY, reasons=reports.FAIL.reasons[:1]), base=base)
    found = findings(_at("jobs/repro.yml", report))
    assert [(item.level, item.location) for item in found] == [
        ("error", None),
        ("error", Location("src/train.py", 41)),
        ("error", Location("src/data.py", 7)),
        ("warning", Location("jobs/repro.yml", 12)),
        ("warning", None),
    ]
    assert found[3].id == WEAKENED_ID and found[3].message.startswith("determinism.allow: more")


def test_one_check_names_a_bounded_number_of_lines() -> None:
    many = replace(
        _ENTROPY,
        evidence=tuple(EvidenceLine("x", Location("a.py", line)) for line in range(1, 500)),
    )
    assert len(findings(_with(many))) == LOCATIONS


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (Location("train.py", 41), Location("train.py", 41)),
        (Location("./my folder/tr ain.py", 3), Location("my folder/tr ain.py", 3)),
        (Location("nb/train.ipynb#cell 2", 3), Location("nb/train.ipynb")),
        (Location("repro.yml"), Location("repro.yml")),
        (Location("", 3), None),
        (Location("/etc/passwd.txt", 3), None),
        (Location("../other/train.py", 3), None),
        (Location("a/../../b.py", 3), None),
        (Location("C:\\x.py", 3), None),
        (Location("tr\u202eain.py", 3), None),
        (Location("tr\nain.py", 3), None),
        (Location("a" * 500, 3), None),
    ],
)
def test_only_a_file_of_the_checkout_is_a_place(given: Location, shown: Location | None) -> None:
    assert located(given) == shown


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "/repro.yml", "../repro.yml", "a/../..", "a\\b.yml", "a\x1b.yml", "a" * 500],
)
def test_a_spec_outside_the_checkout_is_no_place(path: str) -> None:
    assert inside(path) is None
    assert "file=" not in workflow_commands(_at(path, _PLAIN))


@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), reports.hostile(), reports.enormous(tensors=50)],
    ids=[*reports.ALL, "hostile", "large"],
)
def test_any_report_gives_each_finding_once_and_annotations_of_a_bounded_size(
    report: Report,
) -> None:
    found = findings(report)
    assert {item.level for item in found} <= {"error", "warning"}
    assert len({*found}) == len(found)
    for line in workflow_commands(report).splitlines():
        assert line.isprintable() and len(line) < 10_000
