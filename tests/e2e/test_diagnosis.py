"""Claims about a diagnosis from the training to the report: a training of the corpus whose cause no use of a factor names."""

from __future__ import annotations

from tests.corpus.__main__ import cases, run


def test_the_cause_and_the_proof_stand_in_the_report() -> None:
    found = run(next(case for case in cases() if case.name == "pairs"))  # an order by address differs in each run, a race only in most
    assert found.found and found.cause and found.confirmed, (found.diagnosis, found.log)
    assert found.diagnosis is not None and found.diagnosis["remedy"]
