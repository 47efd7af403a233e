"""Claims about a diagnosis from the training to the report: two trainings of the corpus whose causes no use of a factor names."""

from __future__ import annotations

import pytest

from tests.corpus.__main__ import cases, run

CASES = {case.name: case for case in cases()}


@pytest.mark.parametrize("name", ["pairs", "lookup"])  # an order by address, with its line; an operator, replayed
def test_the_cause_its_line_and_the_proof_stand_in_the_report(name: str) -> None:
    found = run(CASES[name])
    assert found.found and found.cause and found.line and found.confirmed, (found.diagnosis, found.log)
    assert found.diagnosis is not None and found.diagnosis["remedy"]
