"""A sample of the combinations, in real processes, and that all of them hold every pair: `make
combinations` gates the rest."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tests.combinations.cases import OPTIONS, Case, cases, trainings
from tests.combinations.check import problems

QUICK = [
    case
    for case in cases()
    if "torch" not in case.training.command and "hangs" not in case.training.name
]
ALWAYS = (
    "aborts@varied",
    "artifact-key",
    "killed@deterministic-2",
    "nothing@deterministic-2",
    "path+raises@deterministic-2",
    "raises@reseeded",
    "unreadable",
)
SAMPLE = [
    pytest.param(case, id=case.name, marks=() if case.name in ALWAYS else pytest.mark.slow)
    for place, case in enumerate(QUICK)
    if case.name in ALWAYS or place % 11 == 0
]


@pytest.mark.parametrize("case", SAMPLE)
def test_every_renderer_says_the_verdict_that_is_due(case: Case, tmp_path: Path) -> None:
    assert problems(case, tmp_path / "case") == []


def test_the_cases_hold_every_pair() -> None:
    rows = [{"training": case.training.name, **vars(case.options)} for case in cases()]
    values = {"training": [item.name for item in trainings()], **OPTIONS}
    for first, second in combinations(values, 2):
        wanted = {(a, b) for a in values[first] for b in values[second]}
        assert {(row[first], row[second]) for row in rows} == wanted, (first, second)
