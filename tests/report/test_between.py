"""Claims about `report.between`: each finding, check and input that is not the same is one row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from repro_gate.report import matrix
from repro_gate.report.model import Report, View
from tests.support import reports

_NAMES = ("before.json", "after.json")


def _shown(a: Report, b: Report, width: int = 2_000, encoding: str = "utf-8") -> str:
    return matrix.between(a, b, _NAMES, View(width=width, encoding=encoding))


def _rows(a: Report, b: Report) -> dict[str, list[str]]:
    """Label -> both values, of a terminal so wide that nothing is broken."""
    found = (line.split("  ") for line in _shown(a, b).splitlines()[1:])
    cells = [[cell.strip() for cell in line if cell.strip()] for line in found]
    return {label: values for label, *values in cells}


@pytest.mark.parametrize("name", reports.ALL)
def test_two_equal_reports_have_no_row(name: str) -> None:
    assert _shown(reports.ALL[name], reports.ALL[name]).split() == list(_NAMES)


def test_a_pass_that_became_a_fail_says_verdict_divergence_cause_and_checks() -> None:
    rows = _rows(reports.PASS, reports.EXPLAINED)
    assert rows["verdict"] == ["pass", "fail"] and "step 3, gradient" in rows["diverges at"][1]
    assert "src/train.py:41" in rows["cause"][1]
    assert rows["check data/checksums"] == ["pass", "fail"]
    assert not {"noise floor", "cost", "check env/lockfile"} & rows.keys()
    fewer = tuple(replace(item, message="other words") for item in reports.CHECKLIST[1:])
    rows = _rows(reports.PASS, replace(reports.PASS, checklist=fewer))
    assert rows == {"check code/committed": ["warn", "not there"]}


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
    dear = replace(reports.PASS, cost=cost)
    for a, b in ((reports.PASS, dear), (dear, reports.PASS)):
        assert _rows(a, b)["cost"][1].endswith(words)
    assert _rows(reports.PASS, replace(reports.PASS, cost=None))["cost"][1] == "not measured"


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        (
            {"seed": 7, "data/new": 1.5},
            {"recipe seed": ["42", "7"], "recipe data/new": ["none", "1.5"]},
        ),
        ({"seed": 10**29}, {"inputs": ["cannot be compared", "one is no input"]}),
    ],
)
def test_inputs_that_changed_are_named_and_what_is_no_input_is_not_believed(
    inputs: dict[str, object], rows: dict[str, list[str]]
) -> None:
    hashed = reports.address(recipe={**reports.ADDRESS.inputs.recipe, **inputs})
    assert _rows(reports.LOCKED, replace(reports.LOCKED, config_hash=hashed)) == rows


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_reports_stay_text_and_keep_to_the_width(width: int, encoding: str) -> None:
    worst = reports.hostile()
    for a, b in ((reports.PASS, worst), (worst, reports.hostile("other"))):
        for line in _shown(a, b, width, encoding).splitlines():
            assert line.isprintable() and (encoding == "ascii" or cell_len(line) <= width)


def test_more_than_a_person_reads_is_counted() -> None:
    many = reports.address(recipe={f"data/{at:03}": at for at in range(100)})
    changed = reports.address(recipe=dict.fromkeys(many.inputs.recipe, 0))
    a, b = (replace(reports.LOCKED, config_hash=item) for item in (many, changed))
    assert _shown(a, b).endswith("\nand 59 more\n")
    assert len(_shown(a, b).splitlines()) < 50
