"""What counts as never finite, and when the memory fill is named as the cause."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.compare.nonfinite import nonfinite
from repro_gate.trace.model import Trace
from tests.support.built_traces import training

Row = tuple[str, str, int, bool]


def holding(*rows: Row) -> Trace:
    """A trace in which these tensors hold NaN to the end."""
    return replace(training(), nonfinite=list(rows))


PARAMETER = ("parameter", "w", -1, True)
PARTIAL = ("parameter", "w", -1, False)


def test_the_fill_is_the_cause_where_a_run_without_it_holds_other_values() -> None:
    for own, default, filled, from_fill in (
        (PARAMETER, None, True, True),
        (PARTIAL, None, True, False),
        (PARAMETER, None, False, False),
        (PARAMETER, [], True, True),
        (PARTIAL, [], True, True),
        (PARAMETER, [PARTIAL], True, True),  # old memory that holds a NaN by chance
        (PARAMETER, [PARAMETER], True, False),  # the code's own NaN
        (("parameter", "w", 1, True), [], True, False),
        (("buffer", "mask", -1, True), None, True, None),  # no fault
    ):
        without = None if default is None else [holding(*default)]
        found = [
            "uninitialized-memory" in said for said in nonfinite([holding(own)], without, filled)
        ]
        assert found == ([] if from_fill is None else [from_fill])
    nan = training()
    nan.blocks = [replace(it, values=("nan",)) if it.kind == "loss" else it for it in nan.blocks]
    (found,) = nonfinite([nan], [training()], True)
    assert "no loss is finite from step 0" in found and "uninitialized-memory" in found
    (found,) = nonfinite([nan], [nan], True)
    assert "uninitialized-memory" not in found
