"""Claims about `report.between`: what is not the same in two reports is said once, what is the same
is only counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from repro_gate.compare.model import Fingerprint
from repro_gate.report import between
from repro_gate.report.model import Report, RunSummary, View
from tests.support import reports

_NAMES = ("before.json", "after.json")


def _shown(a: Report, b: Report, width: int = 2_000, encoding: str = "utf-8") -> str:
    return between.render(a, b, _NAMES, View(width=width, encoding=encoding))


def _rows(a: Report, b: Report) -> dict[str, list[str]]:
    """Label -> both values, of a terminal so wide that nothing is broken."""
    lines = _shown(a, b).split("\n\n")[-1].splitlines()
    return {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines)
    }


@pytest.mark.parametrize("name", reports.ALL)
def test_two_equal_reports_have_nothing_changed(name: str) -> None:
    lines = _shown(reports.ALL[name], reports.ALL[name]).splitlines()
    assert (
        lines[0].startswith(f" {reports.ALL[name].verdict.upper()} ")
        and "nothing changed: all " in lines[0]
    )
    assert [line.split()[0] for line in lines[2:]] == ["before.json", "started"]


def test_a_pass_that_became_a_fail_says_verdict_divergence_and_cause() -> None:
    first = _shown(reports.PASS, reports.EXPLAINED).splitlines()[0]
    assert (
        first.startswith(" PASS  ->  FAIL   ")
        and " changed, " in first
        and not first.endswith(" 0 equal")
    )
    rows = _rows(reports.PASS, reports.EXPLAINED)
    assert rows["verdict"] == ["pass", "fail"] and rows["diverges at"] == [
        "none",
        "step 3, gradient of blocks.3.attn.weight",
    ]
    assert (
        rows["reasons"][1].startswith("determinism/diverged, ")
        and "src/train.py:41 drew from" in rows["cause"][1]
    )
    assert rows["check data/checksums"] == [
        "pass: 1 of 1 files have the declared SHA-256",
        "fail: data/train.bin is not the declared file",
    ]
    assert not {"noise floor", "cost", "command", "wall time", "check env/lockfile"} & rows.keys()


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((14.0, 20.0), "the intervals overlap: no change is shown"),
        ((15.0, 20.0), "the intervals do not overlap"),
    ],
)
def test_two_costs_say_whether_their_intervals_overlap(
    bounds: tuple[float, float], words: str
) -> None:
    cost = replace(reports.COST, determinism_cost_pct=17.0, ci95=bounds, default_step_ms=8.0)
    for a, b in (
        (reports.PASS, replace(reports.PASS, cost=cost)),
        (replace(reports.PASS, cost=cost), reports.PASS),
    ):
        rows = _rows(a, b)
        assert rows["cost"][1].endswith(words) and rows["step times"] != [] and "memory" not in rows


def test_a_cost_that_only_one_of_two_measured_says_nothing_of_overlap() -> None:
    assert _rows(reports.PASS, replace(reports.PASS, cost=None))["cost"][1] == "not measured"


def test_inputs_versions_flags_and_times_that_changed_are_named() -> None:
    hashed = replace(
        reports.ADDRESS, recipe_inputs={**reports.ADDRESS.recipe_inputs, "seed": 7, "data/new": 1.5}
    )
    subject = replace(
        reports.SUBJECT, versions={**reports.SUBJECT.versions, "torch": "2.14.0", "numpy": "2.0"}
    )
    other = replace(
        reports.LOCKED,
        config_hash=hashed,
        subject=subject,
        settings={**reports.SETTINGS, "cudnn.benchmark": True},
        seconds=99.0,
    )
    rows = _rows(reports.LOCKED, other)
    assert rows["recipe seed"] == ["42", "7"] and rows["recipe data/new"] == ["none", "1.5"]
    assert rows["torch"] == ["2.13.0", "2.14.0"] and rows["numpy"] == ["none", "2.0"]
    assert rows["flag cudnn.benchmark"] == ["False", "True"] and rows["wall time"] == [
        "1 min 04 s",
        "1 min 39 s",
    ]
    assert len(rows) == 6 and "platform cpu/threads" not in rows


def test_baseline_and_weakened_checks_that_changed_are_said() -> None:
    rows = _rows(reports.LOCKED, reports.DRIFT)
    assert rows["baseline"] == [
        "unchanged: same inputs, bitwise identical results",
        "drift: same inputs, different results",
    ]
    assert rows["verdict"] == ["pass", "fail"] and "weakened" not in rows
    assert "repro.baseline.yml" in _rows(reports.LOCKED, reports.WEAKENED)["weakened"][1]


def test_a_check_that_only_one_report_has_is_said_and_another_message_alone_is_not() -> None:
    fewer = replace(
        reports.PASS,
        checklist=tuple(replace(item, message="other words") for item in reports.CHECKLIST[1:]),
    )
    assert _rows(reports.PASS, fewer)["check code/committed"] == [
        "warn: train.py has uncommitted changes",
        "not there",
    ]
    assert not [
        label
        for label in _rows(reports.PASS, fewer)
        if label.startswith("check ") and label != "check code/committed"
    ]


def test_an_input_that_no_config_hash_is_made_of_is_said_and_not_believed() -> None:
    hashed = replace(reports.ADDRESS, recipe_inputs={"seed": 10**29})
    assert _rows(reports.LOCKED, replace(reports.LOCKED, config_hash=hashed))["inputs"] == [
        "cannot be compared",
        "one of them is no input",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_reports_stay_text_and_keep_to_the_width(width: int, encoding: str) -> None:
    worst = reports.hostile()
    for a, b in ((reports.PASS, worst), (worst, reports.hostile("other"))):
        for line in _shown(a, b, width, encoding).splitlines():
            assert line.isprintable() and (encoding == "ascii" or cell_len(line) <= width)


def test_more_than_a_person_reads_is_counted() -> None:
    many = replace(
        reports.ADDRESS, recipe_inputs={f"data/{number:03}": number for number in range(100)}
    )
    changed = replace(many, recipe_inputs=dict.fromkeys(many.recipe_inputs, 0))
    text = _shown(
        replace(reports.LOCKED, config_hash=many), replace(reports.LOCKED, config_hash=changed)
    )
    assert (
        "99 values changed" in text
        and text.endswith("\nand 59 more\n")
        and len(text.splitlines()) < 50
    )


def test_runs_that_took_another_time_are_no_row() -> None:
    runs: tuple[RunSummary, ...] = tuple(
        replace(run, seconds=run.seconds + 1) for run in reports.RUNS
    )
    assert "nothing changed" in _shown(reports.PASS, replace(reports.PASS, runs=runs))


def test_other_digests_and_what_is_too_long_to_show_are_a_change() -> None:
    first = Fingerprint(42, ((0, "0" * 32),), {"loss": "0" * 32}, "xxh3-128")
    a, b = (
        replace(reports.PASS, fingerprint=item)
        for item in (first, replace(first, by_step=((0, "1" * 32),)))
    )
    assert "1 value changed" in _shown(a, b).splitlines()[0] and "digests" in _rows(a, b)
    long = ["x" * 500 + middle + "x" * 500 for middle in "ab"]
    a, b = (
        replace(reports.PASS, subject=replace(reports.SUBJECT, command=command)) for command in long
    )
    assert "1 value changed" in _shown(a, b).splitlines()[0] and "command" in _rows(a, b)
    a, b = (
        replace(reports.PASS, subject=replace(reports.SUBJECT, uncommitted=tuple("abcdefg") + last))
        for last in (("h",), ("i",))
    )
    assert "uncommitted" in _rows(a, b)
