"""The comparison finds exactly what differs, where it first differs, and nothing where nothing
does."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from repro_gate.trace.fields import Measured
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
    comparison, turned = compare_runs(a, b), compare_runs(b, a)
    assert not comparison.identical
    assert comparison.first_divergence is not None
    assert turned.first_divergence is not None
    assert (turned.first_divergence.step, turned.first_divergence.kind) == (
        comparison.first_divergence.step,
        comparison.first_divergence.kind,
    )
    return comparison.first_divergence


def test_equal_runs_are_identical() -> None:
    comparison = compare_runs([training()], [training()])
    assert comparison.identical
    assert comparison.first_divergence is None
    assert (comparison.steps, comparison.tensors, comparison.differing) == (3, TENSORS, 0)
    assert comparison.by_step == ()
    assert comparison.losses == ((0, 1.0, 1.0), (1, 0.5, 0.5), (2, 1 / 3, 1 / 3))
    assert comparison.loss_gaps == ((0, 0.0), (1, 0.0), (2, 0.0))
    assert set(comparison.by_kind) == set(KINDS) - {"artifact"}
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
    if kind == "rng":  # alone it is no divergence
        assert compare_runs([a], [b]).identical and compare_runs([a], [b]).by_kind[kind] == Tally(
            len(ROWS[kind]), 1
        )
        b = with_loss(b, 2, 2.0)
    found = first([a], [b])
    assert (found.step, found.kind, found.process, found.detail) == (1, kind, "main", "")
    assert (found.name, found.dtype, found.shape) == ROWS[kind][0]
    comparison = compare_runs([a], [b])
    assert comparison.by_kind[kind] == Tally(len(ROWS[kind]), 1)
    assert comparison.by_step == (((1, 1), (2, 1)) if kind == "rng" else ((1, 1),))
    assert comparison.differing == (kind not in ("rng", "loss"))


def test_the_first_difference_in_order_of_execution_is_named() -> None:
    b = training()
    for step, kind in ((2, "batch"), (1, "optimizer"), (1, "gradient")):
        b = changed(b, place_of(b, step, kind), flip(0))
    assert (first([training()], [b]).step, first([training()], [b]).kind) == (1, "gradient")
    assert compare_runs([training()], [b]).by_step == ((1, 2), (2, 1))


def test_the_earliest_of_several_processes_is_named() -> None:
    a = [training(key="rank0"), training(key="rank1")]
    b = [
        changed(a[0], place_of(a[0], 2, "loss"), flip(0)),
        changed(a[1], place_of(a[1], 1, "gradient"), flip(1)),
    ]
    found = first(a, b)
    assert (found.process, found.step, found.name) == ("rank1", 1, "fc.bias")
    assert compare_runs(a, list(a)).identical
    assert compare_runs(a, list(reversed(a))).identical
    assert compare_runs(a, a).tensors == 2 * TENSORS


def test_a_missing_block_is_a_difference_and_no_twin_is_made_up() -> None:
    a = training()
    b = changed(a, place_of(a, 1, "gradient"), lambda old: None)
    found = first([a], [b])
    assert (found.step, found.kind, found.detail) == (1, "gradient", ONLY_FIRST)
    comparison = compare_runs([b], [a])
    assert comparison.first_divergence is not None
    assert comparison.first_divergence.detail == ONLY_SECOND
    assert comparison.unmatched == comparison.first_divergence


def test_an_extra_block_comes_before_what_follows_from_it() -> None:
    a = training()
    place = place_of(a, 1, "rng")
    b = changed(changed(a, place, flip(0)), place_of(a, 1, "loss"), flip(0))
    b.blocks.insert(place, block(1, "batch", at=1))
    found = first([a], [b])
    assert (found.step, found.kind, found.name, found.detail) == (1, "batch", "images", ONLY_SECOND)


def test_blocks_are_paired_by_their_count_within_a_step() -> None:
    a = training(1)
    a.blocks.append(block(0, "gradient", at=1))
    assert compare_runs([a], [replace(a, blocks=list(a.blocks))]).identical
    assert first([a], [changed(a, len(a.blocks) - 1, flip(1))]).name == "fc.bias"


def test_rows_are_paired_by_name() -> None:
    a = training(1)
    place = place_of(a, 0, "gradient")

    def turned(old: Block) -> Block:
        return replace(old, rows=old.rows[::-1], content=old.digests[16:] + old.digests[:16])

    assert compare_runs([a], [changed(a, place, turned)]).identical
    assert first([a], [changed(a, place, lambda old: flip(0)(turned(old)))]).name == "fc.bias"


def test_rows_of_one_name_are_paired_in_their_order() -> None:
    rows = (("w", "float32", (1,)), ("w", "float32", (1,)), ("v", "float32", (1,)))
    a = replace(training(0), blocks=[block(0, "gradient", rows)])
    comparison = compare_runs([a], [changed(a, 0, flip(2))])
    assert comparison.by_step == ((0, 1),)
    assert comparison.by_kind["gradient"] == Tally(2, 1)
    assert comparison.first_divergence is not None
    assert comparison.first_divergence.name == "v"


def test_missing_and_extra_rows_are_differences() -> None:
    a = training(1)
    b = changed(
        a,
        place_of(a, 0, "gradient"),
        lambda old: replace(old, rows=old.rows[:1], content=old.digests[:16]),
    )
    assert (first([a], [b]).name, first([a], [b]).detail) == ("fc.bias", ONLY_FIRST)
    found = compare_runs([b], [a]).first_divergence
    assert found is not None
    assert (found.name, found.detail) == ("fc.bias", ONLY_SECOND)


@pytest.mark.parametrize(("dtype", "shape"), [("float64", (2, 8)), ("float32", (8, 2))])
def test_another_dtype_or_shape_of_the_same_bytes_is_a_difference(
    dtype: str, shape: tuple[int, ...]
) -> None:
    a, row = training(1), ("fc.weight", dtype, shape)
    place = place_of(a, 0, "gradient")
    b = changed(a, place, lambda old: replace(old, rows=(row, *old.rows[1:])))
    found = first([a], [b])
    assert found.name == "fc.weight"
    assert found.detail == f"float32 [2, 8] in the first run, {dtype} {[*shape]} in the second"


def test_a_process_that_one_run_lacks_is_a_difference() -> None:
    a = [training(key="rank0"), training(key="rank1")]
    found = first(a, a[:1])
    assert (found.step, found.name, found.detail) == (-1, "process rank1", ONLY_FIRST)
    assert compare_runs(a, a[:1]).unmatched == found
    assert compare_runs(
        [*a, Trace(path=a[0].path)], a
    ).identical  # a process that recorded nothing is no process of the training


def test_runs_of_unequal_length_differ_even_where_no_digest_tells() -> None:
    a, b = training(5), training(5)
    b.steps.pop()
    found = first([a], [b])
    assert (found.step, found.name) == (4, "steps")
    assert compare_runs([a], [b]).unmatched == found


def test_a_learning_rate_that_differs_comes_before_the_parameters_that_it_moved() -> None:
    def rate(value: float) -> Block:
        rows = (("param_groups.0.lr", "float", ()),)
        return block(1, "optimizer", rows, at=1, seed=value, values=(value,))

    runs = []
    for value in (1e-3, 1.5e-3):
        trace = training(3)
        place = place_of(trace, 1, "buffer")
        runs.append(
            replace(trace, blocks=[*trace.blocks[:place], rate(value), *trace.blocks[place:]])
        )
    runs[1] = changed(runs[1], place_of(runs[1], 1, "parameter"), flip(0))
    found = compare_runs(*([item] for item in runs)).first_divergence
    assert found is not None and (found.step, found.kind, found.name) == (
        1,
        "optimizer",
        "param_groups.0.lr",
    )
    assert found.values == (1e-3, 1.5e-3) and found.measured and found.max_abs == 1.5e-3 - 1e-3
    runs[1] = changed(runs[1], place_of(runs[1], 1, "gradient"), flip(0))
    found = compare_runs(*([item] for item in runs)).first_divergence
    assert found is not None and found.kind == "gradient"


def test_distances_of_runs_that_end_in_different_steps_are_left_out() -> None:
    """A probe measures what its run ends with: after five steps and after three that is the state
    of different steps."""
    long, short = training(5), apart(training(3), 2.0, 0.27)
    found = compare_runs([long], [short])
    assert found.weights == () and found.differing == 0 and not found.identical
    assert found.first_divergence is not None and (
        found.first_divergence.name,
        found.first_divergence.measured,
    ) == ("steps", False)
    assert noise_floor([long], [short]).weight_l2 is None
    same = compare_runs([training(3)], [apart(training(3, seed=1), 2.0, 0.27)])
    assert [item.max_abs for item in same.weights] == [0.27]


def test_numbers_of_a_trace_have_the_type_that_it_states() -> None:
    def numbers(name: str, dtype: str, a: float, b: float) -> Divergence:
        rows = ((f"param_groups.0.{name}", dtype, ()),)
        traces = [
            replace(training(0), blocks=[block(0, "optimizer", rows, seed=place, values=(item,))])
            for place, item in enumerate((a, b))
        ]
        return first(traces[:1], traces[1:])

    found = [
        numbers("nesterov", "bool", 1.0, 0.0),
        numbers("step", "int", 7.0, 9.0),
        numbers("lr", "float", 0.5, math.nan),
    ]
    assert [item.values for item in found[:2]] == [(True, False), (7, 9)] and str(
        found[2].values
    ) == "(0.5, nan)"
    assert [item.max_abs for item in found] == [None, 2.0, None]


def test_steps_that_one_run_lacks_are_no_differences_of_tensors() -> None:
    comparison = compare_runs([training(5)], [training(8)])
    found = comparison.first_divergence
    assert found is not None and comparison.unmatched is not None and not comparison.identical
    assert (found.step, found.name) == (5, "steps")
    assert (comparison.differing, comparison.by_step) == (0, ())
    longer = training(8)
    comparison = compare_runs(
        [training(5)], [changed(longer, place_of(longer, 3, "loss"), flip(0))]
    )
    found = comparison.first_divergence
    assert found is not None and (found.step, found.kind) == (3, "loss")
    assert comparison.by_step == ((3, 1),)


def test_what_differs_in_the_step_that_one_run_did_not_end_comes_before_the_number_of_steps() -> (
    None
):
    longer = training(8)
    short = training(5)
    short.blocks += [flip(0)(block(5, "batch")), block(5, "parameter", seed="state at the end")]
    found = compare_runs([short], [longer]).first_divergence
    assert found is not None and (found.step, found.kind) == (5, "batch")


def test_processes_of_one_key_are_numbered_by_their_start() -> None:
    traces = [training(seed=seed) for seed in (1, 2)]
    traces += [training(key="rank10"), training(key="rank2")]
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
    earlier = compare_runs([a], [changed(a, place_of(a, 2, "buffer"), flip(0))], [artifact], 10)
    assert earlier.first_divergence is not None and earlier.first_divergence.kind == "buffer"
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
    traces = [
        replace(
            training(0), blocks=[replace(block(0, "loss", rows, seed=seed), values=(value.hex(),))]
        )
        for seed, value in ((1, a), (2, b))
    ]
    found = first(traces[:1], traces[1:])
    assert found.values == (a, b)
    assert found.measured
    assert (found.max_ulp, found.max_abs) == (ulp, abs(a - b))


def test_a_loss_that_is_no_number_has_no_distance() -> None:
    assert first([training()], [with_loss(training(), 1, math.nan)]).measured is False
    huge = compare_runs([with_loss(training(), 1, -1.7e308)], [with_loss(training(), 1, 1.7e308)])
    assert huge.loss_gaps[1] == (1, math.inf)


def test_the_gap_of_losses_is_the_largest_of_all_processes_and_backward_passes() -> None:
    a = [training(key="rank0"), training(key="rank1")]
    b = [with_loss(a[0], 1, 0.5625), with_loss(a[1], 1, 0.75)]
    b[0].blocks.append(block(2, "loss", at=1, values=(9.0,)))  # no twin, no gap
    assert compare_runs(a, b).loss_gaps == ((0, 0.0), (1, 0.25), (2, 0.0))
    nan = [with_loss(a[0], 1, math.nan), a[1]]
    assert compare_runs(a, nan).loss_gaps[1] == (1, math.inf)
    assert compare_runs(nan, nan).loss_gaps[1] == (1, 0.0)


def test_a_measured_distance_is_attached_where_it_belongs() -> None:
    a = training()
    b = apart(changed(a, place_of(a, 2, "parameter"), flip(0)), 1.0, 0.5)
    assert compare_runs([a], [b]).first_divergence == Divergence(
        step=2,
        kind="parameter",
        name="fc.weight",
        process="main",
        dtype="float32",
        shape=(2, 8),
        **vars(FAR),
    )
    assert compare_runs(
        [a], [changed(a, place_of(a, 2, "gradient"), flip(0))]
    ).first_divergence == Divergence(
        step=2, kind="gradient", name="fc.weight", process="main", dtype="float32", shape=(2, 8)
    )


def test_parameters_are_listed_before_optimizer_state_and_farthest_first() -> None:
    def of(step: int, kind: str, name: str, far: float) -> Measured:
        return Measured(
            step=step,
            kind=kind,
            name=name,
            dtype="f",
            shape=(),
            max_abs=far,
            max_ulp=int(far),
            l2=far,
            reference_l2=1,
        )

    b = apart(apart(training(), 1.0, 0.5), None, None, name="fc.bias")
    b = apart(b, 4.0, 3.0, name="fc.weight.exp_avg", kind="optimizer")
    more = [
        of(1, "parameter", "early", 9),
        of(2, "parameter", "same", 0),
        of(2, "gradient", "x", 1),
    ]
    b = replace(b, distances=[*b.distances, *more])
    found = compare_runs([training()], [b]).weights
    assert [item.name for item in found] == ["fc.bias", "fc.weight", "fc.weight.exp_avg"]


def test_parameters_that_differ_at_the_end_and_were_not_measured_are_counted() -> None:
    a = training()
    last, early = (changed(a, place_of(a, step, "parameter"), flip(0)) for step in (2, 1))
    assert compare_runs([a], [last]).unmeasured == 1
    assert compare_runs([a], [apart(last, 1.0, 0.5)]).unmeasured == 0
    assert compare_runs([a], [apart(last, 1.0, 0.5, name="fc.bias")]).unmeasured == 1
    assert compare_runs([a], [early]).unmeasured == 0  # the runs came together again


KEYS = st.lists(st.sampled_from(["main", "rank0", "rank1"]), min_size=1, max_size=2, unique=True)


@given(KEYS, st.integers(1, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_one_injected_change_is_what_is_found_live_and_in_the_end(
    keys: list[str], steps: int, data: st.DataObject
) -> None:
    a = [training(steps, key=key) for key in keys]
    who = data.draw(st.integers(0, len(a) - 1))
    place = data.draw(st.integers(0, len(a[who].blocks) - 1))
    row = data.draw(st.integers(0, len(a[who].blocks[place].rows) - 1))
    b = list(a)
    b[who] = changed(a[who], place, flip(row))
    old = a[who].blocks[place]
    comparison = compare_runs(a, b)
    found = comparison.first_divergence
    if old.kind == "rng":
        assert comparison.identical and found is None and comparison.by_step == ()
        assert comparison.by_kind["rng"].differing == 1
        return
    name = old.rows[row][0]
    assert found is not None
    assert (found.process, found.step, found.kind, found.name) == (
        keys[who], old.step, old.kind, name,
    )  # fmt: skip
    assert comparison.by_step == ((old.step, 1),)
    assert {
        kind: tally.differing for kind, tally in comparison.by_kind.items() if tally.differing
    } == {old.kind: 1}
    twins = {key_of(item): item for item in a[who].blocks}
    live = [
        item
        for block in b[who].blocks
        if (item := first_difference(keys[who], twins, block)) is not None
    ]
    assert [with_distance(item, {}) for item in live] == [found]
    assert first_difference("main", {}, block(0, "loss")) is None


def test_what_two_algorithms_digested_is_not_compared() -> None:
    ours, theirs = (
        training(facts={**FACTS, "digest": name}) for name in ("xxh3-128", "sha256-128")
    )
    assert compare_runs([ours], [ours]).identical
    with pytest.raises(
        Inconclusive, match="by xxh3-128 in the first run and by sha256-128 in the second"
    ) as refused:
        compare_runs([ours], [theirs])
    assert refused.value.reason_id == "determinism/other-digest" and refused.value.remedy


def test_the_name_of_a_digest_is_one_of_those_there_are() -> None:
    named = [
        training(facts={**FACTS, "digest": name})
        for name in ("xxh3-128", "sha256-128", "<b>\x1b[31m", "")
    ]
    assert [named_digest([trace]) for trace in named] == ["xxh3-128", "sha256-128", "unknown", ""]
    assert named_digest(named) == "sha256-128+unknown+xxh3-128"


def test_many_processes_of_one_key_and_rows_of_one_name_cost_no_time() -> None:
    """A forged trace can have both; time that grows with their square would be minutes."""
    rows = (("w", "float32", ()),) * 200_000
    a, b = (block(0, "parameter", rows[:1]) for _ in range(2))
    a, b = (
        replace(a, rows=rows, content=bytes(16 * len(rows))),
        replace(b, rows=rows, content=bytes(16 * len(rows) - 1) + b"1"),
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
    assert compare_runs([a], [b]).identical
    assert all(
        first_difference("main", {key_of(item): item for item in a.blocks}, item) is None
        for item in b.blocks
    )
