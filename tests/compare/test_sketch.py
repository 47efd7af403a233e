"""How far a run is from one that is gone, by its recorded sketches: rounding, more, and what cannot be
told. What is recorded is untrusted."""

from __future__ import annotations

import base64
import math
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.compare.change import ROUNDINGS
from repro_gate.compare.sketch import change_since, distance, recorded, sketched
from repro_gate.trace.fields import Measured, Sketched
from repro_gate.trace.model import Trace
from tests.support.built_traces import training

STEPS = 3
UNIT = 1e-6  # of rounding, of both tensors of `run`
_SOURCE = random.Random(56)
SUMS = tuple(_SOURCE.gauss(0, 1) for _ in range(16))
WEIGHT, GRADIENT = "parameter fc.weight float32[4,4]", "gradient fc.weight float32[4,4]"


def row(kind: Any, far: float = 0.0, **other: Any) -> Sketched:
    """The sketch of a tensor that is so far from that of SUMS."""
    moved = tuple(value + far * (-1) ** at for at, value in enumerate(SUMS))
    given = {"name": "fc.weight", "dtype": "float32", "shape": (4, 4), "sums": moved, **other}
    return Sketched(kind, *given.values())


def run(*rows: Sketched) -> list[Trace]:
    return [replace(training(STEPS), sketches=list(rows))]


def moved(kind: Any, step: int, l2: float | None = UNIT, name: str = "fc.weight") -> Measured:
    """By how much rounding moves a tensor."""
    figures: dict[str, Any] = {"max_abs": l2, "max_ulp": None, "l2": l2, "reference_l2": 1.0}
    return Measured(kind=kind, name=name, dtype="float64", shape=(4, 4), step=step, **figures)


def perturbed(*rows: Measured) -> list[Trace]:
    return [replace(training(STEPS), distances=list(rows))]


ROUNDED = (moved("gradient", 0), moved("parameter", 0), moved("parameter", STEPS - 1))


def kept(*rows: Sketched, rounded: Sequence[Measured] = ROUNDED) -> dict[str, str]:
    return recorded(run(*rows), perturbed(*rounded), STEPS)


OLD = kept(row("gradient"), row("parameter"))


def since(gradient: float, parameter: float, old: Mapping[str, str] = OLD) -> Any:
    """The change since OLD, where the two tensors are so many roundings apart."""
    now = run(row("gradient", gradient * UNIT), row("parameter", parameter * UNIT))
    return change_since(old, sketched(now), STEPS)


def test_the_same_bits_are_no_distance() -> None:
    assert OLD.keys() == {WEIGHT, GRADIENT}
    found = since(0, 0)
    assert (found.size, found.steps, found.first, found.unmatched) == ("rounding", STEPS, None, ())
    # what is recorded is an eighth of a rounding coarse
    assert found.worst.roundings < 1 / 16


def test_of_the_same_bits_it_is_exactly_none() -> None:
    """By which `gate.change` knows that what differs was not sketched."""
    assert since(0, 0).worst.roundings == 0


def test_a_difference_of_few_roundings_is_rounding() -> None:
    found = since(1.7, 0.5)
    assert (found.size, found.first, found.detail) == ("rounding", None, "")
    assert (found.worst.step, found.worst.kind, found.worst.name) == (0, "gradient", "fc.weight")
    assert found.worst.roundings == pytest.approx(1.7, abs=0.1)
    found = since(0.5, 1.7)
    assert (found.worst.step, found.worst.kind) == (STEPS - 1, "parameter")


def test_three_hundred_roundings_are_another_training() -> None:
    found = since(0, 300)
    assert found.size == "different"
    assert (found.first, found.worst) == (found.first, found.first)
    assert (found.first.step, found.first.kind) == (STEPS - 1, "parameter")
    assert found.first.roundings == pytest.approx(300, rel=1e-3)
    # the first gradient comes before what follows from it
    found = since(40, 300)
    assert found.first.kind == "gradient" and found.worst.kind == "parameter"


@pytest.mark.parametrize(("far", "size"), [(0.99, "rounding"), (1.01, "different")])
def test_the_bound_is_that_of_a_run_that_is_there(far: float, size: str) -> None:
    assert since(0, far * ROUNDINGS).size == size


@pytest.mark.parametrize(
    "other", [{"name": "fc.other"}, {"shape": (16,)}, {"dtype": "float16"}, {"shape": ()}]
)
def test_what_has_another_name_type_or_shape_is_named_and_not_compared(
    other: dict[str, Any],
) -> None:
    now = sketched(run(row("gradient", UNIT), row("parameter", 1e9, **other)))
    found: Any = change_since(OLD, now, STEPS)
    assert found.size == "different" and found.worst.kind == "gradient" and found.detail
    (theirs,) = now.keys() - OLD.keys()
    assert found.unmatched == tuple(sorted([WEIGHT, theirs]))


def test_a_wrapper_changes_no_name() -> None:
    now = run(row("parameter", name="_orig_mod.module.fc.weight"), row("gradient"))
    assert change_since(OLD, sketched(now), STEPS).unmatched == ()


@pytest.mark.parametrize(
    "now", [(), (row("parameter", name="other"),), (row("gradient", dtype="bfloat16"),)]
)
def test_without_a_common_tensor_nothing_is_said_of_its_size(now: tuple[Sketched, ...]) -> None:
    found = change_since(OLD, sketched(run(*now)), STEPS)
    assert (found.size, found.worst, found.first) == ("different", None, None)
    assert found.detail == "no tensor is in both" and {*OLD} <= {*found.unmatched}
    assert change_since({}, {}, STEPS).detail == "no tensor is in both"


def test_a_tensor_that_is_not_finite_any_more_is_infinitely_far() -> None:
    found: Any = change_since(OLD, sketched(run(row("gradient", sums=None))), STEPS)
    assert (found.size, found.first.roundings) == ("different", math.inf)
    assert WEIGHT in found.unmatched
    # and one that never was is not recorded
    assert kept(row("gradient", sums=None), row("parameter")).keys() == {WEIGHT}


def packed(*numbers: int, form: str = "i") -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}{form}", *numbers)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1e-6",
        "1e-6 ",
        "1e-6 ====",
        "1e-6 \ud800",
        f"x {packed(*[1] * 16)}",
        f"0 {packed(*[1] * 16)}",
        f"1e-6  {packed(*[1] * 16)}",
        f"1e-6 {packed(*[1] * 16)}\n",
        f"1e-6 {packed(*[1] * 15)}",
        f"1e-6 {packed(*[1] * 17)}",
        f"1e-6 {packed(*[1] * 15, form='q')}",
        f"1e-6 {packed(*[1] * 16)}===",
        f"1e-300 {packed(*[1] * 16)}",
        f"-1e-6 {packed(*[1] * 16)}",
        f"1e-6 {packed(*[2**63 - 1] * 16, form='q')}",
        f"nan {packed(*[0] * 16)}",
        f"inf {packed(*[0] * 16)}",
    ],
)
def test_garbage_is_another_training_and_no_error(text: str) -> None:
    found = since(0, 0, {**OLD, WEIGHT: text})
    assert found.size == "different", found
    assert found.first.kind == "parameter" and found.first.roundings > 1e3


@given(st.text(max_size=200) | st.builds("{:g} {}".format, st.floats(), st.text(max_size=90)))
def test_any_text_gives_an_answer(text: str) -> None:
    found = since(0, 0, {WEIGHT: text})
    assert found.size in ("rounding", "different") and found.worst is not None


def test_a_large_tensor_in_small_units_takes_64_bits() -> None:
    """As one of float64 does, whose rounding is 1e-16 of its numbers."""
    small = [replace_l2(item, 1e-12) for item in ROUNDED]
    old = kept(row("gradient"), row("parameter"), rounded=small)
    assert {len(base64.b64decode(text.split()[1])) for text in old.values()} == {16 * 8}
    assert {len(base64.b64decode(text.split()[1])) for text in OLD.values()} == {16 * 4}
    for far, size in ((0.0, "rounding"), (2.0, "rounding"), (300.0, "different")):
        now = run(row("gradient", far * 1e-12), row("parameter"))
        found: Any = change_since(old, sketched(now), STEPS)
        assert found.size == size
        assert found.worst.roundings == pytest.approx(far, abs=0.1)


def replace_l2(item: Measured, l2: float) -> Measured:
    return moved(item.kind, item.step, l2)


def test_what_no_number_of_64_bits_holds_is_left_out() -> None:
    tiny = [replace_l2(item, 1e-30) for item in ROUNDED]
    assert kept(row("gradient"), row("parameter"), rounded=tiny) == {}


@pytest.mark.parametrize("l2", [None, 0.0])
def test_a_tensor_without_a_size_of_rounding_is_left_out(l2: float | None) -> None:
    rounded = [replace_l2(item, l2) for item in ROUNDED]  # type: ignore[arg-type]
    assert kept(row("gradient"), row("parameter"), rounded=rounded) == {}
    assert kept(row("gradient"), rounded=()) == {}


def test_a_last_value_that_rounding_alone_moves_too_far_is_left_out() -> None:
    rounded = (*ROUNDED[:2], moved("parameter", STEPS - 1, 101 * UNIT))
    assert kept(row("gradient"), row("parameter"), rounded=rounded).keys() == {GRADIENT}


UNSTEADY = kept(
    row("gradient"),
    row("parameter"),
    rounded=(*ROUNDED[:2], moved("parameter", STEPS - 1, 101 * UNIT)),
)


def test_what_was_left_out_is_on_both_sides() -> None:
    assert since(1, 1e9, UNSTEADY).unmatched == ()


def test_without_last_values_only_the_first_step_is_compared() -> None:
    found = since(1, 1e9, UNSTEADY)
    assert (found.size, found.steps) == ("different", 1) and "first gradients" in found.detail


def test_only_the_first_process_is_compared() -> None:
    ranks = [*run(), *run(row("gradient")), *run(row("gradient", 1.0))]
    assert sketched(ranks)[GRADIENT].sums == row("gradient").sums
    assert sketched([]) == {}


def test_the_distance_is_that_of_the_sums_and_both_have_as_many() -> None:
    assert distance([3.0, 0.0], [0.0, 4.0]) == pytest.approx(math.sqrt(12.5))
    assert distance([1e300], [-1e300]) == 2e300
    assert distance([1.7e308] * 16, [-1.7e308] * 16) == math.inf
    with pytest.raises(ValueError, match="same number"):
        distance([1.0], [1.0, 2.0])
