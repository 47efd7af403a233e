"""`report.operators`: what a person reads of the operators that were measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from repro_gate.compare.operators import Longer, OperatorArm, OperatorCall, Operators
from repro_gate.report.operators import arm, changed, extent, main_cost, sentence, table
from repro_gate.report.terminal import render_operators
from repro_gate.report.wording import plain_text
from repro_gate.trace.fields import Location

REPEATS = OperatorArm(outcome="repeats", runs=20)
DIFFERS = OperatorArm(outcome="differs", runs=20, differing=7, max_ulp=3)
RAISES = OperatorArm(outcome="raises")
INDEX_PUT = "aten.index_put_.default"


def slower(ms: float) -> Longer:
    return Longer(ms, (0.9 * ms, 1.1 * ms), 1 + ms, (1 + 0.9 * ms, 1 + 1.1 * ms))


def call(operator: str, ms: float = 0.0, **more: Any) -> OperatorCall:
    given = {"operator": operator, "form": "[]", "off": REPEATS, "on": REPEATS, **more}
    return OperatorCall(**given, flags=slower(ms) if ms else None)


COSTLY = call(
    INDEX_PUT,
    0.31,
    off=DIFFERS,
    options="accumulate=True",
    lines=(Location("model.py", 41), Location("pool.py", 88)),
    filling=slower(0.12),
)
FOUND = Operators(
    calls=(call("aten.relu.default"), COSTLY), cost_pct=4.7, step_ms=10.0, seconds=12.0
)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (DIFFERS, "differs in 7 of 20, up to 3 ULP"),
        (REPEATS, "repeats in 20"),
        (RAISES, "raises"),
        (OperatorArm(outcome="not measured", message="a list"), "not measured: a list"),
    ],
)
def test_an_arm_is_told_with_its_counts(found: OperatorArm, words: str) -> None:
    assert arm(found) == words


def test_the_sentence_names_the_shares_and_what_they_miss() -> None:
    assert plain_text(sentence(FOUND)) == (
        "4.7% slower with the flags: 3.1% index_put_ (model.py:41), 1.2% filling new memory, "
        "0.4% not attributed"
    )


def test_without_a_cost_the_sentence_says_so_and_without_a_step_there_is_none() -> None:
    words = plain_text(sentence(replace(FOUND, cost_pct=None)))
    assert words.startswith("the cost was not measured; in percent of a step: 3.1% index_put_")
    assert sentence(replace(FOUND, step_ms=None)) == ()


@pytest.mark.parametrize("cost", [0.0, -0.0, -0.01])
def test_no_cost_is_not_faster_and_no_figure_is_a_negative_zero(cost: float) -> None:
    words = plain_text(sentence(replace(FOUND, calls=(), cost_pct=cost)))
    assert words == "0.0% slower with the flags: 0.0% not attributed"


def test_a_change_lists_its_first_calls_and_says_how_many_more() -> None:
    kinds = {"newly differs": [call(str(number)) for number in range(5)]}
    ((kind, *shown),) = changed(kinds, 3)
    assert plain_text(kind) == "5 newly differs" and len(shown) == 4
    assert plain_text(shown[-1]) == "and 2 more calls"
    ((_, *shown),) = changed(kinds, 5)
    assert len(shown) == 5 and not any("more" in plain_text(line) for line in shown)


def test_what_makes_half_of_the_cost_has_the_flag_that_saves_it() -> None:
    words = plain_text(main_cost(FOUND))
    assert words.startswith(
        "3.1 points of it index_put_ (model.py:41): `determinism.allow: [{flag:"
    )
    assert "torch.use_deterministic_algorithms" in words
    assert words.endswith("]` may save it and gives up operators that repeat their bits")
    convolution = replace(COSTLY, operator="aten.convolution.default")
    on_gpu = replace(FOUND, calls=(convolution,), platform={"device": "cuda: H100"})
    assert "torch.backends.cudnn.deterministic" in plain_text(main_cost(on_gpu))
    filled = replace(COSTLY, flags=None, filling=slower(0.4))
    words = plain_text(main_cost(replace(FOUND, calls=(filled,))))
    assert "of it filling new memory" in words and "fill_uninitialized_memory" in words
    assert "]` saves it and gives up known contents of memory" in words
    for nothing in (None, replace(FOUND, cost_pct=9.0), replace(FOUND, cost_pct=-4.0)):
        assert main_cost(nothing) == ()


def test_the_table_of_a_training_is_by_share_of_the_cost() -> None:
    head, rows = table(FOUND, 20)
    assert head == ("operator", "lines", "calls", "without flags", "with", "costs")
    (first,) = ([plain_text(cell) for cell in row] for row in rows)
    assert first == [
        "index_put_ (accumulate=True)",
        "model.py:41 and 1 more",
        "1",
        "differs in 7 of 20, up to 3 ULP",
        "repeats in 20",
        "3.1 of 4.7%",
    ]
    lost = call("aten.histc.default", off=OperatorArm(outcome="not measured", message="why"))
    both = replace(FOUND, calls=(*FOUND.calls, lost))
    assert [plain_text(row[0]) for row in table(both, 20)[1]][1:] == ["histc"]
    assert len(table(both, 1)[1]) == 1


def test_the_table_of_known_calls_has_those_that_differ_raise_or_are_slower() -> None:
    calls = (
        call("mm"),
        call("bmm", 0.5),
        call("put_", off=DIFFERS, on=RAISES),
        call("histc", off=OperatorArm(outcome="not measured", message="no kernel")),
    )
    head, rows = table(Operators(calls=calls), 20)
    assert head[1] == "form"
    assert [plain_text(row[0]) for row in rows] == ["bmm", "put_", "histc"]
    assert plain_text(rows[0][-1]) == "1.50 (1.45 to 1.55)"


def test_how_much_was_measured_is_said() -> None:
    missing = call("histc", off=OperatorArm(outcome="not measured"))
    words = plain_text(extent(replace(FOUND, calls=(*FOUND.calls, missing))))
    assert words == (
        "3 distinct calls in 12.0 s, 1 of them not measured; "
        "1 operator with equal bits and no measurable cost"
    )
    many = replace(FOUND, calls=FOUND.calls * 250)
    assert "500 distinct calls, the most frequent ones" in plain_text(extent(many))


def test_no_text_of_a_training_reaches_a_terminal_as_it_is() -> None:
    hostile = "aten.\x1b[31m\n::error::`x`"
    evil = call(hostile, off=OperatorArm(outcome="not measured", message="\x1b]0;x\x07\n::stop"))
    text = render_operators(Operators(calls=(evil,)), {"newly differs": [evil]})
    assert "\x1b" not in text and "\x07" not in text
    assert not any(line.strip().startswith("::") for line in text.splitlines())
