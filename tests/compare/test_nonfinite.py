"""What counts as never finite, and when the memory fill is named as the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.compare.nonfinite import nonfinite
from repro_gate.trace.model import Trace
from tests.support.built_traces import training


def holding(*rows: tuple[str, str, int, bool]) -> Trace:
    """A trace in which these tensors hold NaN to the end."""
    return replace(training(), nonfinite=list(rows))


PARAMETER = ("parameter", "w", -1, True)
PARTIAL = ("parameter", "w", -1, False)


@pytest.mark.parametrize(
    ("own", "default", "filled", "from_fill"),
    [
        (PARAMETER, None, True, True),
        (PARTIAL, None, True, False),
        (PARAMETER, None, False, False),
        (PARAMETER, (), True, True),
        (PARTIAL, (), True, True),
        (PARAMETER, (PARTIAL,), True, True),  # old memory that holds a NaN by chance
        (PARAMETER, (PARAMETER,), True, False),  # the code's own NaN
        (("parameter", "w", 1, True), (), True, False),
    ],
)
def test_the_fill_is_the_cause_where_a_run_without_it_holds_other_values(
    own: tuple[str, str, int, bool],
    default: tuple[tuple[str, str, int, bool], ...] | None,
    filled: bool,
    from_fill: bool,
) -> None:
    found = list(
        nonfinite([holding(own)], None if default is None else [holding(*default)], filled)
    )
    assert len(found) == 1 and ("uninitialized-memory" in found[0]) is from_fill


def test_nan_in_a_buffer_alone_is_no_fault() -> None:
    assert list(nonfinite([holding(("buffer", "mask", -1, True))], None, True)) == []


def test_a_finite_loss_without_the_flags_shows_what_the_fill_did() -> None:
    nan = training()
    blocks = [
        replace(item, values=("nan",)) if item.kind == "loss" else item for item in nan.blocks
    ]
    nan = replace(nan, blocks=blocks)
    (found,) = nonfinite([nan], [training()], True)
    assert "no loss is finite from step 0" in found and "uninitialized-memory" in found
    (found,) = nonfinite([nan], [nan], True)
    assert "uninitialized-memory" not in found
