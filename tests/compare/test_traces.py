"""The comparison finds exactly what differs, where it first differs, and nothing where nothing
does."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from repro_gate.compare import traces
from repro_gate.compare.distances import with_distance
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
    ORDER,
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
TENSORS = sum(len(rows) for kind, rows in ROWS.items() if kind not in ("rng", "loss"))


def first(a: list[Trace], b: list[Trace]) -> Divergence:
    """The first divergence, of which there must be one; seen from the other side it is at the same
    place."""
    found, turned = (compare_runs(*pair).first_divergence for pair in ((a, b), (b, a)))
    assert found is not None and turned is not None and not compare_runs(a, b).identical
    assert (turned.step, turned.kind) == (found.step, found.kind)
    return found


def place(a: list[Trace], b: list[Trace]) -> tuple[int, str, str]:
    found = first(a, b)
    return found.step, found.kind, found.name


def test_equal_runs_are_identical() -> None:
    comparison = compare_runs([training()], [training()])
    assert comparison.identical and comparison.first_divergence is None
    assert (comparison.steps, comparison.tensors, comparison.differing) == (3, TENSORS, 0)
    assert comparison.losses == ((0, 1.0, 1.0), (1, 0.5, 0.5), (2, 1 / 3, 1 / 3))
    assert comparison.loss_gaps == ((0, 0.0), (1, 0.0), (2, 0.0))
    assert set(comparison.by_kind) == set(KINDS) - {"artifact"} and comparison.by_step == ()
    assert (comparison.weights, comparison.unmatched, comparison.unmeasured) == ((), None, 0)


def test_generators_alone_do_not_hide_a_process_or_a_step_that_one_run_lacks() -> None:
    a = training()
    b = changed(a, place_of(a, 1, "rng"), flip(0))
    assert not compare_runs([a, training(key="rank1")], [b]).identical
    assert not compare_runs([a], [replace(b, steps=b.steps[:2])]).identical
    assert not compare_runs([a], [changed(b, place_of(b, 2, "batch"), lambda old: None)]).identical


@pytest.mark.parametrize("kind", ORDER)
def test_a_difference_of_each_kind_is_found_and_counted(kind: str) -> None:
    a = training()
    b = changed(a, place_of(a, 1, kind), flip(0))
    one = Tally(len(ROWS[kind]), 1)
    if kind == "rng":  # alone it is no divergence
        alone = compare_runs([a], [b])
        assert alone.identical and alone.by_kind[kind] == one
        b = with_loss(b, 2, 2.0)
    found, comparison = first([a], [b]), compare_runs([a], [b])
    assert (found.step, found.kind, found.process, found.detail) == (1, kind, "main", "")
    assert (found.name, found.dtype, found.shape) == ROWS[kind][0]
    assert comparison.by_kind[kind] == one
    assert comparison.by_step == (((1, 1), (2, 1)) if kind == "rng" else ((1, 1),))
    assert comparison.differing == (kind not in ("rng", "loss"))


def test_the_first_difference_in_order_of_execution_of_all_processes_is_named() -> None:
    b = training()
    for step, kind in ((2, "batch"), (1, "optimizer"), (1, "gradient")):
        b = changed(b, place_of(b, step, kind), flip(0))
    assert place([training()], [b])[:2] == (1, "gradient")
    assert compare_runs([training()], [b]).by_step == ((1, 2), (2, 1))
    a = [training(key="rank0"), training(key="rank1")]
    b0 = changed(a[0], place_of(a[0], 2, "loss"), flip(0))
    found = first(a, [b0, changed(a[1], place_of(a[1], 1, "gradient"), flip(1))])
    assert (found.process, found.step, found.name) == ("rank1", 1, "fc.bias")
    assert compare_runs(a, list(reversed(a))).identical
    assert compare_runs(a, a).tensors == 2 * TENSORS


def test_a_missing_or_extra_block_is_a_difference_and_comes_before_what_follows_from_it() -> None:
    a = training()
    b = changed(a, place_of(a, 1, "gradient"), lambda old: None)
    found = first([a], [b])
    assert (found.step, found.kind, found.detail) == (1, "gradient", ONLY_FIRST)
    assert compare_runs([a], [b]).unmatched == found
    assert first([b], [a]).detail == ONLY_SECOND
    at = place_of(a, 1, "rng")
    b = changed(changed(a, at, flip(0)), place_of(a, 1, "loss"), flip(0))
    b.blocks.insert(at, block(1, "batch", at=1))
    assert place([a], [b]) == (1, "batch", "images") and first([a], [b]).detail == ONLY_SECOND


def test_blocks_are_paired_by_their_count_within_a_step_and_rows_by_name_in_their_order() -> None:
    a = training(1)
    a.blocks.append(block(0, "gradient", at=1))
    assert compare_runs([a], [replace(a, blocks=list(a.blocks))]).identical
    assert first([a], [changed(a, len(a.blocks) - 1, flip(1))]).name == "fc.bias"
    a, at = training(1), place_of(training(1), 0, "gradient")

    def turned(old: Block) -> Block:
        return replace(old, rows=old.rows[::-1], content=old.digests[16:] + old.digests[:16])

    assert compare_runs([a], [changed(a, at, turned)]).identical
    assert first([a], [changed(a, at, lambda old: flip(0)(turned(old)))]).name == "fc.bias"
    rows = (("w", "float32", (1,)), ("w", "float32", (1,)), ("v", "float32", (1,)))
    a = replace(training(0), blocks=[block(0, "gradient", rows)])
    comparison = compare_runs([a], [changed(a, 0, flip(2))])
    assert comparison.by_step == ((0, 1),) and comparison.by_kind["gradient"] == Tally(2, 1)
    assert first([a], [changed(a, 0, flip(2))]).name == "v"


def test_missing_and_extra_rows_other_dtypes_and_shapes_are_differences() -> None:
    a = training(1)
    at = place_of(a, 0, "gradient")
    b = changed(a, at, lambda old: replace(old, rows=old.rows[:1], content=old.digests[:16]))
    for pair, detail in ((([a], [b]), ONLY_FIRST), (([b], [a]), ONLY_SECOND)):
        assert (first(*pair).name, first(*pair).detail) == ("fc.bias", detail)
    for dtype, shape in (("float64", (2, 8)), ("float32", (8, 2))):  # of the same bytes
        row = ("fc.weight", dtype, shape)
        b = changed(a, at, lambda old, row=row: replace(old, rows=(row, *old.rows[1:])))  # type: ignore[misc]
        found = first([a], [b])
        assert found.name == "fc.weight"
        assert found.detail == f"float32 [2, 8] in the first run, {dtype} {[*shape]} in the second"


def test_a_process_and_steps_that_one_run_lacks_are_differences_and_none_of_tensors() -> None:
    a = [training(key="rank0"), training(key="rank1")]
    found = first(a, a[:1])
    assert (found.step, found.name, found.detail) == (-1, "process rank1", ONLY_FIRST)
    assert compare_runs(a, a[:1]).unmatched == found
    # a process that recorded nothing is no process of the training
    assert compare_runs([*a, Trace(path=a[0].path)], a).identical
    fewer = training(5)
    fewer.steps.pop()  # where no digest tells
    for one, other, step in ((training(5), fewer, 4), (training(5), training(8), 5)):
        comparison = compare_runs([one], [other])
        assert comparison.unmatched == first([one], [other]) and not comparison.identical
        assert place([one], [other])[::2] == (step, "steps")
        assert (comparison.differing, comparison.by_step) == (0, ())
    longer = training(8)
    b = changed(longer, place_of(longer, 3, "loss"), flip(0))
    assert place([training(5)], [b])[:2] == (3, "loss")
    assert compare_runs([training(5)], [b]).by_step == ((3, 1),)
    # what differs in the step that one run did not end comes before the number of steps
    short = training(5)
    short.blocks += [flip(0)(block(5, "batch")), block(5, "parameter", seed="state at the end")]
    assert place([short], [longer])[:2] == (5, "batch")


def test_a_learning_rate_that_differs_comes_before_the_parameters_that_it_moved() -> None:
    def trained(value: float) -> Trace:
        rows = (("param_groups.0.lr", "float", ()),)
        rate = block(1, "optimizer", rows, at=1, seed=value, values=(value,))
        trace = training(3)
        at = place_of(trace, 1, "buffer")
        return replace(trace, blocks=[*trace.blocks[:at], rate, *trace.blocks[at:]])

    a, b = trained(1e-3), trained(1.5e-3)
    b = changed(b, place_of(b, 1, "parameter"), flip(0))
    assert place([a], [b]) == (1, "optimizer", "param_groups.0.lr")
    found = first([a], [b])
    assert found.values == (1e-3, 1.5e-3) and found.measured and found.max_abs == 1.5e-3 - 1e-3
    assert first([a], [changed(b, place_of(b, 1, "gradient"), flip(0))]).kind == "gradient"


def test_distances_of_runs_that_end_in_different_steps_are_left_out() -> None:
    """A probe measures what its run ends with: after five steps and after three that is the state
    of different steps."""
    long, short = training(5), apart(training(3), 2.0, 0.27)
    found = compare_runs([long], [short])
    assert found.weights == () and found.differing == 0
    assert first([long], [short]).name == "steps" and not first([long], [short]).measured
    assert noise_floor([long], [short]).weight_l2 is None
    same = compare_runs([training(3)], [apart(training(3, seed=1), 2.0, 0.27)])
    assert [item.max_abs for item in same.weights] == [0.27]


@pytest.mark.parametrize(
    ("name", "dtype", "values", "said", "far"),
    [
        ("nesterov", "bool", (1.0, 0.0), "(True, False)", None),
        ("step", "int", (7.0, 9.0), "(7, 9)", 2.0),
        ("lr", "float", (0.5, math.nan), "(0.5, nan)", None),
    ],
)
def test_numbers_of_a_trace_have_the_type_that_it_states(
    name: str, dtype: str, values: tuple[float, float], said: str, far: float | None
) -> None:
    rows = ((f"param_groups.0.{name}", dtype, ()),)
    a, b = (
        replace(training(0), blocks=[block(0, "optimizer", rows, seed=at, values=(value,))])
        for at, value in enumerate(values)
    )
    found = first([a], [b])
    assert (str(found.values), found.max_abs) == (said, far)


def test_processes_of_one_key_are_numbered_by_their_start() -> None:
    traces = [training(seed=1), training(seed=2), training(key="rank10"), training(key="rank2")]
    found = processes(traces)
    assert [*found] == ["main", "main#2", "rank2", "rank10"]
    assert [traces.index(trace) for trace in found.values()] == [0, 1, 3, 2]


def test_artifacts_come_last_and_are_counted() -> None:
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


@pytest.mark.parametrize(
    ("dtype", "a", "b", "ulp"),
    [
        ("float32", 1.0, 1.0 + 2**-23, 1),
        ("float32", 2.0, 2.0 - 2**-23, 1),
        ("float64", 1.0, 1.0 + 2**-50, 4),
        ("float16", 1.0, 1.0 + 2**-10, 1),
        ("float32", 0.0, -0.0, 0),
        ("float32", 2**-149, -(2**-149), 2),
        ("bfloat16", 1.0, 1.5, None),
        ("float16", 1.0, 1e300, None),
    ],
)
def test_the_distance_of_a_loss_is_its_own(dtype: str, a: float, b: float, ulp: int | None) -> None:
    rows = (("loss", dtype, ()),)
    one, other = (
        replace(training(0), blocks=[block(0, "loss", rows, seed=value, values=(value,))])
        for value in (a, b)
    )
    found = first([one], [other])
    assert found.values == (a, b) and found.measured
    assert (found.max_ulp, found.max_abs) == (ulp, abs(a - b))


def test_the_gap_of_losses_is_the_largest_of_all_processes_and_backward_passes() -> None:
    a = [training(key="rank0"), training(key="rank1")]
    b = [with_loss(a[0], 1, 0.5625), with_loss(a[1], 1, 0.75)]
    b[0].blocks.append(block(2, "loss", at=1, values=(9.0,)))  # no twin, no gap
    assert compare_runs(a, b).loss_gaps == ((0, 0.0), (1, 0.25), (2, 0.0))
    nan = [with_loss(a[0], 1, math.nan), a[1]]
    assert compare_runs(a, nan).loss_gaps[1] == (1, math.inf)
    assert compare_runs(nan, nan).loss_gaps[1] == (1, 0.0)
    assert first(a, nan).measured is False
    far = [[with_loss(training(), 1, value)] for value in (-1.7e308, 1.7e308)]
    assert compare_runs(*far).loss_gaps[1] == (1, math.inf)


def test_a_measured_distance_is_attached_where_it_belongs() -> None:
    a = training()
    b = apart(changed(a, place_of(a, 2, "parameter"), flip(0)), 1.0, 0.5)
    found = first([a], [b])
    assert (found.name, found.process, found.measured) == ("fc.weight", "main", True)
    assert found == replace(found, **vars(FAR))
    assert not first([a], [changed(a, place_of(a, 2, "gradient"), flip(0))]).measured


def test_parameters_are_listed_before_optimizer_state_and_farthest_first() -> None:
    b = apart(apart(training(), 1.0, 0.5), None, None, name="fc.bias")
    b = apart(b, 4.0, 3.0, name="fc.weight.exp_avg", kind="optimizer")
    last = b.distances[0]
    early, same, other = (
        structs.replace(last, name="x", **more)
        for more in ({"step": 1}, {"max_abs": 0.0, "max_ulp": 0, "l2": 0.0}, {"kind": "gradient"})
    )
    b = replace(b, distances=[*b.distances, early, same, other])
    found = compare_runs([training()], [b]).weights
    assert [item.name for item in found] == ["fc.bias", "fc.weight", "fc.weight.exp_avg"]


def test_parameters_that_differ_at_the_end_and_were_not_measured_are_counted() -> None:
    a = training()
    last, early = (changed(a, place_of(a, step, "parameter"), flip(0)) for step in (2, 1))
    for b, count in (
        (last, 1),
        (apart(last, 1.0, 0.5), 0),
        (apart(last, 1.0, 0.5, name="fc.bias"), 1),
        (early, 0),  # the runs came together again
    ):
        assert compare_runs([a], [b]).unmeasured == count


KEYS = st.lists(st.sampled_from(["main", "rank0", "rank1"]), min_size=1, max_size=2, unique=True)


@given(KEYS, st.integers(1, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_one_injected_change_is_what_is_found_live_and_in_the_end(
    keys: list[str], steps: int, data: st.DataObject
) -> None:
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


def test_what_two_algorithms_digested_is_not_compared() -> None:
    names = ("xxh3-128", "sha256-128", "<b>\x1b[31m", "")
    named = [training(facts={**FACTS, "digest": name}) for name in names]
    assert compare_runs(named[:1], named[:1]).identical
    said = "by xxh3-128 in the first run and by sha256-128 in the second"
    with pytest.raises(Inconclusive, match=said) as refused:
        compare_runs(named[:1], named[1:2])
    assert refused.value.reason_id == "determinism/other-digest" and refused.value.remedy
    # the name of a digest is one of those there are
    assert [named_digest([trace]) for trace in named] == [*names[:2], "unknown", ""]
    assert named_digest(named) == "sha256-128+unknown+xxh3-128"


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


def test_of_blocks_that_are_equal_no_row_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(traces, "_digest")
    a, b = training(), training()
    twins = {key_of(item): item for item in a.blocks}
    assert compare_runs([a], [b]).identical
    assert not any(first_difference("main", twins, item) for item in b.blocks)
