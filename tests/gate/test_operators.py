"""`gate.operators`: which recorded calls are measured, and what a diagnosis cites of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.compare.operators import OperatorArm, OperatorCall, Operators
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.errors import Inconclusive
from repro_gate.gate import operators
from repro_gate.gate.operators import cited, operators_of
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import INTERRUPTED
from repro_gate.spec.model import OperatorsBudget, Spec
from repro_gate.trace.fields import Call

PUT = "aten.index_put_.default"
FOUND = Operators(
    calls=(
        OperatorCall(
            operator=PUT,
            form="[]",
            off=OperatorArm(outcome="differs", runs=20, differing=7),
            on=OperatorArm(outcome="repeats", runs=20),
        ),
    )
)


def call(op: str, line: int) -> Call:
    return Call(op, "", "float32", "forward", "[]", 1, (("model.py", line),))


def results(*calls: Call, asked: bool = True) -> Any:
    spec = Spec(path=Path("repro.yml"), operators=OperatorsBudget(30.0) if asked else None)
    read = [{"torch.get_num_threads": 3}]
    traces = [SimpleNamespace(calls=it, settings=read) for it in ([], list(calls))]
    folder = SimpleNamespace(outer={}, sandbox=None)
    control = SimpleNamespace(traces=traces)
    return SimpleNamespace(
        spec=spec, control=control, folder=folder, interrupted="", cost=lambda: None
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked to be measured: calls, each with its line, and seconds."""
    asked: list[Any] = []

    def measure(
        spec: Spec, calls: Any, outer: Any, sandbox: Any, seconds: float, threads: int
    ) -> Operators:
        assert threads == 3  # as many as the control had
        asked.append(([(item.op, item.sites[0][1]) for item in calls], seconds))
        return FOUND if calls else Operators(calls=())

    monkeypatch.setattr(operators, "of_training", measure)
    return asked


def test_operators_are_measured_only_if_the_spec_asks_for_it(measured: list[Any]) -> None:
    assert operators_of(results(call(PUT, 4), asked=False), Watch()) == (None, ())
    assert not measured
    found, notes = operators_of(results(call(PUT, 4), call("aten.mm.default", 5)), Watch())
    assert found == FOUND and notes == ()
    assert measured == [([(PUT, 4), ("aten.mm.default", 5)], 30.0)]


def test_a_control_that_recorded_nothing_is_a_note(measured: list[Any]) -> None:
    found, (note,) = operators_of(results(), Watch())
    assert found is None and note.id == "ops/none" and note.remedy and not measured


def test_a_worker_without_an_answer_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Operators:
        raise Inconclusive("no answer", remedy="have torch", reason_id="ops/no-answer")

    monkeypatch.setattr(operators, "of_training", fails)
    found, (note,) = operators_of(results(call(PUT, 4)), Watch())
    assert found is None and (note.id, note.remedy) == ("ops/no-answer", "have torch")
    diagnosis = Diagnosis(cause="nondeterministic-op", op=PUT)
    assert cited(diagnosis, results(call(PUT, 4))) == diagnosis


@pytest.mark.parametrize(
    ("error", "words"),
    [(KeyboardInterrupt(), "it was interrupted"), (OSError(28, "No space left"), "No space left")],
)
def test_what_ends_the_measuring_early_leaves_the_report(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    def fails(*_: Any) -> Operators:
        raise error

    monkeypatch.setattr(operators, "of_training", fails)
    interrupts: list[BaseException] = []
    recorded = results(call(PUT, 4))
    recorded.interrupt = interrupts.append
    found, (note,) = operators_of(recorded, Watch())
    assert found is None and note.id == "ops/ended-early" and note.remedy
    assert note.message.endswith(words)
    assert interrupts == ([error] if isinstance(error, KeyboardInterrupt) else [])


def test_a_citation_does_not_take_the_place_of_the_proof(measured: list[Any]) -> None:
    proven = Diagnosis(cause="nondeterministic-op", op=PUT, evidence=("seen", "the proof"))
    found = cited(proven, results(call(PUT, 4)))
    assert found is not None and found.evidence[1:] == ("seen", "the proof")
    assert found.evidence[0].startswith("measured on this machine")


def test_after_ctrl_c_nothing_is_cited(measured: list[Any]) -> None:
    diagnosis = Diagnosis(cause="nondeterministic-op", op=PUT)
    recorded = results(call(PUT, 4))
    recorded.interrupted = INTERRUPTED
    assert cited(diagnosis, recorded) is diagnosis and not measured


def test_a_diagnosis_that_names_an_operator_cites_its_call_alone(measured: list[Any]) -> None:
    diagnosis = Diagnosis(cause="nondeterministic-op", op=PUT, file="model.py", line=9)
    recorded = results(call("aten.mm.default", 9), call(PUT, 4), call(PUT, 9), asked=False)
    found = cited(diagnosis, recorded)
    assert measured == [([(PUT, 9)], 5.0)] and found is not None
    (line,) = found.evidence
    assert line.endswith("without the flags it differs in 7 of 20; with them it repeats in 20")


def test_without_an_operator_or_its_call_nothing_is_cited(measured: list[Any]) -> None:
    other = Diagnosis(cause="unseeded-rng")
    assert cited(other, results(call(PUT, 4))) is other and cited(None, results()) is None
    unrecorded = replace(other, op="aten.mm.default")
    assert cited(unrecorded, results(call(PUT, 4))) == unrecorded
    assert not measured
