"""The comparison finds exactly what differs, where it first differs, and nothing else."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from repro_gate.compare.distances import distance_of_values, with_distance
from repro_gate.compare.model import KINDS, Distance, Divergence, Tally
from repro_gate.compare.tolerance import noise_floor
from repro_gate.compare.traces import (
    ONLY_FIRST,
    ONLY_SECOND,
    compare_runs,
    first_difference,
    key_of,
    named_digest,
    processes,
)
from repro_gate.errors import Inconclusive
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace
from tests.support.built_traces import (
    FACTS,
    ROWS,
    apart,
    block,
    changed,
    flip,
    place_of,
    training,
    with_loss,
)

FAR = Distance(0.5, 7, 1.0, 0.5)
WEIGHT, BIAS, STEPS = ("gradient", "fc.weight"), ("gradient", "fc.bias"), ("optimizer", "steps")
EXP_AVG = ("optimizer", "fc.weight.exp_avg")
TENSORS = sum(len(rows) for kind, rows in ROWS.items() if kind not in ("rng", "loss"))


def first(a: list[Trace], b: list[Trace]) -> Divergence:
    """The first divergence, of which there must be one; seen from the other side it is at the same
    place."""
    found, turned = (compare_runs(*pair).first_divergence for pair in ((a, b), (b, a)))
    assert found is not None and turned is not None and not compare_runs(a, b).identical
    assert (turned.step, turned.kind) == (found.step, found.kind)
    return found


def flipped(trace: Trace, step: int, kind: str, row: int = 0) -> Trace:
    return changed(trace, place_of(trace, step, kind), flip(row))


A = training()
RANKS = [training(key="rank0"), training(key="rank1")]


def test_equal_runs_are_identical_artifacts_come_last_and_are_counted() -> None:
    comparison = compare_runs([A], [training()])
    assert comparison.identical and comparison.first_divergence is None
    assert (comparison.steps, comparison.tensors, comparison.differing) == (3, TENSORS, 0)
    assert comparison.losses == ((0, 1.0, 1.0), (1, 0.5, 0.5), (2, 1 / 3, 1 / 3))
    assert comparison.loss_gaps == ((0, 0.0), (1, 0.0), (2, 0.0))
    assert set(comparison.by_kind) == set(KINDS) - {"artifact"} and comparison.by_step == ()
    assert (comparison.weights, comparison.unmatched, comparison.unmeasured) == ((), None, 0)
    assert compare_runs(RANKS, RANKS[::-1]).identical
    assert compare_runs(RANKS, RANKS).tensors == 2 * TENSORS
    # a process that recorded nothing is no process of the training
    assert compare_runs([*RANKS, Trace(path=A.path)], RANKS).identical
    a = training()
    artifact = Divergence(step=2, kind="artifact", name="out/m.pt: w", dtype="float32", shape=(3,))
    comparison = compare_runs([a], [a], [artifact], 10)
    assert not comparison.identical and comparison.first_divergence == artifact
    assert comparison.by_kind["artifact"] == Tally(10, 1)
    assert (comparison.tensors, comparison.differing) == (TENSORS + 10, 1)
    b = changed(a, place_of(a, 2, "buffer"), flip(0))
    assert str(compare_runs([a], [b], [artifact], 10).first_divergence).count("'buffer'") == 1
    assert compare_runs([a], [a], [artifact], 0).by_kind["artifact"] == Tally(1, 1)
    assert compare_runs([a], [a], [], 10).identical


def without(trace: Trace, step: int, kind: str) -> Trace:
    return changed(trace, place_of(trace, step, kind), lambda old: None)


def turned(old: Block) -> Block:
    return replace(old, rows=old.rows[::-1], content=old.digests[16:] + old.digests[:16])


def cut(old: Block) -> Block:
    return replace(old, rows=old.rows[:1], content=old.digests[:16])


def with_blocks(trace: Trace, *blocks: Block, at: int | None = None) -> Trace:
    at = len(trace.blocks) if at is None else at
    return replace(trace, blocks=[*trace.blocks[:at], *blocks, *trace.blocks[at:]])


def with_row(dtype: str, shape: tuple[int, ...]) -> Trace:
    row = ("fc.weight", dtype, shape)
    return changed(A, GRADIENT, lambda old: replace(old, rows=(row, *old.rows[1:])))


def rated(value: float) -> Trace:
    """A training that records its learning rate before the step's buffers."""
    rows = (("param_groups.0.lr", "float", ()),)
    rate = block(1, "optimizer", rows, at=1, seed=value, values=(value,))
    return with_blocks(A, rate, at=place_of(A, 1, "buffer"))


R, FAST = rated(1e-3), rated(1.5e-3)
RNG, GRADIENT = place_of(A, 1, "rng"), place_of(A, 1, "gradient")
SECOND, EXTRA = block(2, "gradient", at=1), block(1, "batch", at=1)
NO_RNG, FEWER = flipped(A, 1, "rng"), replace(A, steps=A.steps[:2])  # where no digest tells
NAMES = [(name, "float32", ()) for name in "wwv"]
TWINS = replace(training(0), blocks=[block(0, "gradient", NAMES)])
UNFINISHED = with_blocks(A, flip(0)(block(3, "batch")), block(3, "parameter", seed="at the end"))
SAID = "float32 [2, 8] in the first run, {} in the second"
LONG, LONGER, RATE = training(5), training(8), ("optimizer", "param_groups.0.lr")
BATCH = ("batch", "images")
MORE = with_blocks(flipped(NO_RNG, 1, "loss"), EXTRA, at=RNG)
TURNED = changed(A, GRADIENT, lambda old: flip(0)(turned(old)))
DOUBLE, OTHER_DOUBLE = with_blocks(A, SECOND), with_blocks(A, flip(1)(SECOND))
# one run, the other, and where they differ first: step, kind, name; what is said of it
FIRST: dict[str, tuple[Trace, Trace, tuple[int, str, str], str]] = {
    "the earliest step": (A, flipped(flipped(A, 2, "batch"), 1, "optimizer"), (1, *EXP_AVG), ""),
    "its first kind": (A, flipped(flipped(A, 1, "optimizer"), 1, "gradient"), (1, *WEIGHT), ""),
    "a missing block": (A, without(A, 1, "gradient"), (1, *WEIGHT), ONLY_FIRST),
    "an extra block before what follows from it": (A, MORE, (1, *BATCH), ONLY_SECOND),
    "a second block of a step": (DOUBLE, OTHER_DOUBLE, (2, *BIAS), ""),
    "a row in another order": (A, TURNED, (1, *BIAS), ""),
    "beside two rows of one name": (TWINS, changed(TWINS, 0, flip(2)), (0, "gradient", "v"), ""),
    "a missing row": (A, changed(A, GRADIENT, cut), (1, *BIAS), ONLY_FIRST),
    "a dtype": (A, with_row("float64", (2, 8)), (1, *WEIGHT), SAID.format("float64 [2, 8]")),
    "a shape": (A, with_row("float32", (8, 2)), (1, *WEIGHT), SAID.format("float32 [8, 2]")),
    "a number of steps": (A, FEWER, (2, *STEPS), "2"),
    "a number of steps, beside generators": (NO_RNG, FEWER, (2, *STEPS), "2"),
    "more steps": (LONG, LONGER, (5, *STEPS), "8"),
    "a value before the steps": (LONG, flipped(LONGER, 3, "loss"), (3, "loss", "loss"), ""),
    "what differs in the step that one run did not end": (UNFINISHED, LONG, (3, *BATCH), ""),
    "a rate before what it moved": (R, flipped(FAST, 1, "parameter"), (1, *RATE), ""),
    "a generator before what draws": (A, with_loss(NO_RNG, 2, 2.0), (1, "rng", "python"), ""),
    "a gradient before the rate": (R, flipped(FAST, 1, "gradient"), (1, *WEIGHT), ""),
}


@pytest.mark.parametrize("case", FIRST)
def test_the_first_difference_in_order_of_execution_is_named(case: str) -> None:
    a, b, where, said = FIRST[case]
    found = first([a], [b])
    assert (found.step, found.kind, found.name) == where
    assert said in found.detail and bool(said) == bool(found.detail)


def test_what_one_run_lacks_is_no_tensor_that_differs() -> None:
    process = first(RANKS, RANKS[:1])
    assert (process.step, process.name, process.detail) == (-1, "process rank1", ONLY_FIRST)
    assert not compare_runs([A, RANKS[1]], [NO_RNG]).identical
    later = [flipped(RANKS[0], 2, "loss"), flipped(RANKS[1], 1, "gradient", 1)]
    found = first(RANKS, later)
    assert (found.process, found.step, found.name) == ("rank1", 1, "fc.bias")
    for a, b in ((RANKS, RANKS[:1]), ([A], [FEWER])):
        comparison = compare_runs(a, b)
        assert comparison.unmatched == first(a, b)
        assert (comparison.differing, comparison.by_step) == (0, ())
    missing = compare_runs([without(A, 1, "gradient")], [A]).unmatched
    assert missing is not None and missing.detail == ONLY_SECOND
    named = compare_runs([TWINS], [changed(TWINS, 0, flip(2))])
    assert named.by_kind["gradient"] == Tally(2, 1), "rows of one name are one"
    assert not compare_runs([A], [without(NO_RNG, 2, "batch")]).identical
    assert compare_runs([A], [changed(A, GRADIENT, turned)]).identical
    assert compare_runs([with_blocks(A, SECOND)], [with_blocks(A, SECOND)]).identical


def alone(dtype: str, value: float) -> Trace:
    """A trace of this one number."""
    content = block(0, "optimizer", (("x", dtype, ()),), seed=value, values=(value,))
    return replace(training(0), blocks=[content])


def test_numbers_have_the_type_that_the_trace_states_and_only_numbers_a_distance() -> None:
    for dtype, a, b, ulp in (
        ("bool", 1.0, 0.0, None),
        ("int", 7.0, 9.0, None),
        ("float", 0.5, math.nan, None),
        ("float64", 1.0, 1.0 + 2**-50, 4),
        ("float32", 2.0, 2.0 - 2**-23, 1),
        ("float16", 1.0, 1.0 + 2**-10, 1),
        ("float32", 0.0, -0.0, 0),
        ("float32", 2**-149, -(2**-149), 2),
        ("bfloat16", 1.0, 1.5, None),
        ("float16", 1.0, 1e300, None),
    ):
        found = first([alone(dtype, a)], [alone(dtype, b)])
        kind = {"bool": bool, "int": int}.get(dtype, float)
        far = None if dtype == "bool" or math.isnan(b) else abs(a - b)
        assert repr(found.values) == repr((kind(a), kind(b)))
        assert (found.max_ulp, found.max_abs) == (ulp, far)
    for a, b, dtype, far in (
        (2**53 + 1, 2**53, "int", (1.0, None)),
        (1, 1.5, "int", (0.5, None)),
        (-1.7e308, 1.7e308, "float", (None, 0xFFDC85A260EE76EC)),  # a gap that is no float
        (math.nan, 1.0, "float", None),
        (10**400, 1, "int", None),
        ("0.5", "0.75", "str", None),
        (True, 3, "str", None),
        ("1", 1, "str", None),
    ):
        found = distance_of_values(a, b, dtype)
        assert (found and (found.max_abs, found.max_ulp)) == far


def test_processes_of_one_key_are_numbered_and_two_algorithms_are_not_compared() -> None:
    traces = [training(seed=1), training(seed=2), training(key="rank10"), training(key="rank2")]
    found = processes(traces)
    assert [*found] == ["main", "main#2", "rank2", "rank10"]
    assert [traces.index(trace) for trace in found.values()] == [0, 1, 3, 2]
    names = ("xxh3-128", "sha256-128", "<b>\x1b[31m", "")
    named = [training(facts={**FACTS, "digest": name}) for name in names]
    assert compare_runs(named[:1], named[:1]).identical
    with pytest.raises(Inconclusive) as refused:
        compare_runs(named[:1], named[1:2])
    assert refused.value.reason_id == "determinism/other-digest" and refused.value.remedy
    # the name of a digest is one of those there are
    assert [named_digest([trace]) for trace in named] == [*names[:2], "unknown", ""]
    assert named_digest(named) == "sha256-128+unknown+xxh3-128"


def test_the_gap_of_losses_is_the_largest_of_all_processes_and_backward_passes() -> None:
    b = [with_loss(RANKS[0], 1, 0.5625), with_loss(RANKS[1], 1, 0.75)]
    b[0].blocks.append(block(2, "loss", at=1, values=(9.0,)))  # no twin, no gap
    assert compare_runs(RANKS, b).loss_gaps == ((0, 0.0), (1, 0.25), (2, 0.0))
    nan, *far = ([with_loss(A, 1, value)] for value in (math.nan, -1.7e308, 1.7e308))
    assert compare_runs([A], nan).loss_gaps[1] == (1, math.inf) == compare_runs(*far).loss_gaps[1]
    assert compare_runs(nan, nan).loss_gaps[1] == (1, 0.0)
    assert first([A], nan).measured is False


def test_a_distance_is_attached_where_it_belongs_parameters_first_and_farthest_first() -> None:
    b = apart(apart(A, 1.0, 0.5), None, None, name="fc.bias")
    b = apart(b, 4.0, 3.0, name="fc.weight.exp_avg", kind="optimizer")
    early, same, other = (
        structs.replace(b.distances[0], name="x", **more)
        for more in ({"step": 1}, {"max_abs": 0.0, "max_ulp": 0, "l2": 0.0}, {"kind": "gradient"})
    )
    b = replace(b, distances=[*b.distances, early, same, other])
    found = compare_runs([A], [b]).weights
    assert [item.name for item in found] == ["fc.bias", "fc.weight", "fc.weight.exp_avg"]
    last, early = (flipped(A, step, "parameter") for step in (2, 1))
    found = first([A], [apart(last, 1.0, 0.5)])
    assert found == replace(found, name="fc.weight", process="main", **vars(FAR)) and found.measured
    assert not first([A], [flipped(A, 2, "gradient")]).measured
    assert not first(RANKS, [RANKS[0], flipped(RANKS[1], 2, "gradient")]).node
    nodes = [replace(item, facts={"host": f"gpu{n}"}) for n, item in enumerate(RANKS)]
    found = first(RANKS, [nodes[0], flipped(nodes[1], 2, "gradient")])
    assert (found.process, found.node) == (RANKS[1].key, "gpu1")
    bias = apart(last, 1.0, 0.5, name="fc.bias")
    # early: the runs came together again
    for b, count in ((last, 1), (apart(last, 1.0, 0.5), 0), (bias, 1), (early, 0)):
        assert compare_runs([A], [b]).unmeasured == count
    long, short = training(5), apart(training(3), 2.0, 0.27)
    found = compare_runs([long], [short])
    assert found.weights == () and found.differing == 0
    assert first([long], [short]).name == "steps" and not first([long], [short]).measured
    assert noise_floor([long], [short]).weight_l2 is None
    same = compare_runs([training(3)], [apart(training(3, seed=1), 2.0, 0.27)])
    assert [item.max_abs for item in same.weights] == [0.27]


KEYS = st.lists(st.sampled_from(["main", "rank0", "rank1"]), min_size=1, max_size=2, unique=True)


@given(KEYS, st.integers(1, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_one_injected_change_is_found(keys: list[str], steps: int, data: st.DataObject) -> None:
    a = [training(steps, key=key) for key in keys]
    who = data.draw(st.integers(0, len(a) - 1))
    at = data.draw(st.integers(0, len(a[who].blocks) - 1))
    old = a[who].blocks[at]
    row = data.draw(st.integers(0, len(old.rows) - 1))
    b = list(a)
    b[who] = changed(a[who], at, flip(row))
    comparison = compare_runs(a, b)
    found = comparison.first_divergence
    tallies = comparison.by_kind.items()
    assert {kind: item.differing for kind, item in tallies if item.differing} == {old.kind: 1}
    if old.kind == "rng":
        assert comparison.identical and found is None and comparison.by_step == ()
        return
    assert found is not None
    where = (found.process, found.step, found.kind, found.name)
    assert where == (keys[who], old.step, old.kind, old.rows[row][0])
    assert comparison.by_step == ((old.step, 1),)
    twins = {key_of(item): item for item in a[who].blocks}
    live = [first_difference(keys[who], twins, block) for block in b[who].blocks]
    assert [with_distance(item, {}) for item in live if item is not None] == [found]
    assert first_difference("main", {}, block(0, "loss")) is None


def test_many_processes_of_one_key_and_rows_of_one_name_cost_no_time() -> None:
    """A forged trace can have both; time that grows with their square would be minutes."""
    rows = (("w", "float32", ()),) * 200_000
    a, b = (
        replace(block(0, "parameter"), rows=rows, content=bytes(16 * len(rows) - 1) + last)
        for last in (b"\0", b"1")
    )
    began = time.process_time()
    labels = list(processes([training(1)] * 5_000))
    assert (labels[1], labels[-1], len(set(labels))) == ("main#2", "main#5000", 5_000)
    found = first_difference("main", {key_of(a): a}, b)
    assert found is not None and found.name == "w"
    assert time.process_time() - began < 2
