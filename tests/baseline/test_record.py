"""Claims about the bits that a run ended with: every final bit moves a digest, and nothing else
does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from repro_gate.baseline.model import MAX_CURVE, RecordedResult
from repro_gate.baseline.record import outside_facts, result_of
from repro_gate.compare.artifacts import Artifact, Leaf
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace
from tests.support.built_traces import (
    FACTS,
    block,
    changed,
    flip,
    place_of,
    run,
    training,
    with_loss,
)


def leaf(value: object) -> Leaf:
    return Leaf(kind="number", dtype=type(value).__name__, shape=None, digest=repr(value))


FILE = Artifact(
    format="json", digest="aa", leaves={"loss": leaf(1), "name": leaf("x")}, structure="s"
)


def with_end(trace: Trace, seed: object = 42) -> Trace:
    """The trace of a training that came to its end: the probe digests parameters and optimizer
    state once more."""
    end = len(trace.steps)
    last = [block(end, kind, seed=seed) for kind in ("parameter", "optimizer")]
    return replace(trace, blocks=[*trace.blocks, *last])


def every(trace: Trace, n: int) -> Trace:
    """What the same training records under `capture.every: n`: losses always, the rest at every
    n-th step, at the start and at the end."""
    steps = {-1, len(trace.steps), *range(0, len(trace.steps), n)}
    kept = [item for item in trace.blocks if item.kind == "loss" or item.step in steps]
    return replace(trace, blocks=kept)


def of(*traces: Trace) -> RecordedResult:
    """The result of a run of these processes."""
    return result_of(run("deterministic-1", *traces), {})


def at(step: int, kind: str, row: int = 0) -> Callable[[Trace], Trace]:
    return lambda trace: changed(trace, place_of(trace, step, kind), flip(row))


def test_an_outcome_says_what_is_known_of_the_run() -> None:
    found = result_of(run("deterministic-1", training(3)), {"out/a.json": FILE})
    assert (found.seed, found.steps, [*found.artifacts]) == (42, 3, ["out/a.json"])
    assert found.curve == {0: 1.0, 1: 0.5, 2: 1 / 3}
    digests = [found.losses, found.weights, found.optimizer, *found.artifacts.values()]
    assert all(
        isinstance(item, str) and len(item) == 71 and item.startswith("sha256:") for item in digests
    )
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (at(2, "loss"), {"losses"}),
        (at(2, "parameter", 0), {"weights"}),
        (at(2, "parameter", 1), {"weights"}),
        (at(2, "buffer"), {"weights"}),
        (at(2, "optimizer"), {"optimizer"}),
        *(
            (at(*place), set())
            for place in (
                (0, "parameter"),
                (2, "gradient"),
                (2, "batch"),
                (2, "rng"),
                (1, "optimizer"),
                (-1, "parameter"),
            )
        ),
    ],
)
def test_each_final_bit_moves_its_own_digest_and_no_other_bit_moves_any(
    change: Callable[[Trace], Trace], part: set[str]
) -> None:
    before, after = of(training()), of(change(training()))
    assert {
        name
        for name in ("losses", "weights", "optimizer")
        if getattr(before, name) != getattr(after, name)
    } == part
    assert part or before == after


def test_names_and_types_count_and_the_order_in_which_tensors_were_recorded_does_not() -> None:
    def renamed(old: Block) -> Block:
        return replace(old, rows=tuple((f"model.{row[0]}", *row[1:]) for row in old.rows))

    def retyped(old: Block) -> Block:
        return replace(old, rows=tuple((row[0], "float64", row[2]) for row in old.rows))

    def turned(old: Block) -> Block:
        halves = [old.digests[place : place + 16] for place in range(0, len(old.digests), 16)]
        return replace(old, rows=tuple(reversed(old.rows)), content=b"".join(reversed(halves)))

    before, place = of(training()), place_of(training(), 2, "parameter")
    same = [
        of(changed(training(), place, change)).weights == before.weights
        for change in (renamed, retyped, turned)
    ]
    assert same == [False, False, True]


@pytest.mark.parametrize("n", [3, 100])
def test_how_often_digests_were_taken_does_not_count(n: int) -> None:
    whole = with_end(training(10))
    assert of(every(whole, n)) == of(whole)
    other = with_end(training(10), seed="other")
    assert of(every(other, n)).weights != of(whole).weights


def test_two_losses_of_one_step_both_count() -> None:
    trace, second = training(), block(2, "loss", at=1, values=(0.25,))
    both, other = (
        replace(trace, blocks=[*trace.blocks, item]) for item in (second, flip(0)(second))
    )
    assert len({of(item).losses for item in (trace, both, other)}) == 3


def test_every_process_counts_by_its_name() -> None:
    pair = [training(key="rank0"), training(key="rank1", seed=7)]
    swapped = [training(key="rank0", seed=7), training(key="rank1")]
    assert of(*pair) == of(*reversed(pair))
    assert of(*pair).weights != of(*swapped).weights
    assert of(*pair).weights != of(pair[0]).weights


def test_values_recorded_by_hand_count_in_whichever_step_they_were_last() -> None:
    rows = (("accuracy", "float", ()),)
    trace = replace(
        training(0),
        blocks=[
            block(0, "parameter", rows),
            block(1, "parameter", (("weights", "float64", (3,)),)),
        ],
    )
    assert of(trace).weights != of(changed(trace, 0, flip(0))).weights
    earlier = replace(
        trace,
        blocks=[
            flip(0)(trace.blocks[0]),
            replace(trace.blocks[0], step=1),
            replace(trace.blocks[1], at=1),
        ],
    )
    assert of(earlier).weights == of(trace).weights


def test_nothing_of_a_kind_is_none_and_not_the_digest_of_nothing() -> None:
    batches = [item for item in training().blocks if item.kind == "batch"]
    found = of(replace(training(), blocks=batches))
    assert (found.losses, found.weights, found.optimizer) == (None, None, None)
    assert found.loss_curve == "" and of().steps == 0


def test_an_artifact_is_digested_by_its_leaves_structure_and_format() -> None:
    def digest_of(**change: object) -> str:
        return result_of(
            run("deterministic-1", training()), {"a": replace(FILE, **change)}
        ).artifacts["a"]  # type: ignore[arg-type]

    assert digest_of(digest="bb", leaves=dict(reversed([*FILE.leaves.items()]))) == digest_of()
    leaves = (
        {"loss": leaf(2), "name": leaf("x")},
        {"loss": leaf(1)},
        {"loss": leaf(1), "title": leaf("x")},
    )
    others = {
        *(digest_of(leaves=item) for item in leaves),
        digest_of(structure="t"),
        digest_of(format="opaque"),
    }
    assert len(others) == 5 and digest_of() not in others


def curve_of(steps: int) -> Mapping[int, float]:
    return of(
        Trace(
            path=training(0).path,
            blocks=[block(step, "loss", values=(float(step),)) for step in range(steps)],
            end="exit",
        )
    ).curve


@pytest.mark.parametrize(
    "steps", [1, MAX_CURVE - 1, MAX_CURVE, MAX_CURVE + 1, 2 * MAX_CURVE, 12_345]
)
def test_a_curve_is_short_even_and_ends_with_the_last_loss(steps: int) -> None:
    curve = [*curve_of(steps).items()]
    assert len(curve) <= MAX_CURVE and curve[-1] == (steps - 1, float(steps - 1))
    assert len({b - a for (a, _), (b, _) in pairwise(curve[:-1])}) <= 1
    assert len(curve) >= min(steps, 40)


def test_curves_of_runs_of_different_length_share_steps_and_hold_what_is_no_number() -> None:
    assert len(curve_of(180).keys() & curve_of(900)) >= 10
    assert of(with_loss(training(), 2, float("nan"))).loss_curve.endswith("2 nan")


# Facts that are no inputs

MACHINE = {
    "kernel": "Linux 6.8",
    "libc": "glibc 2.39",
    "os": "Ubuntu 24.04",
    "cpu-model": "EPYC",
    "gpu.0.uuid": "GPU-1",
    "driver": "560",
}


def facts_of(*traces: Trace, machine: Mapping[str, str] = MACHINE) -> Mapping[str, str]:
    return outside_facts(run("deterministic-1", *traces), machine)


def test_imported_distributions_and_what_of_the_machine_is_no_input_are_facts() -> None:
    assert facts_of(replace(training(), distributions={"numpy": "2.1.0", "torch": "2.13.0"})) == {
        "distribution/numpy": "2.1.0", "distribution/torch": "2.13.0", "kernel": "Linux 6.8", "libc": "glibc 2.39", "os": "Ubuntu 24.04",
    }  # fmt: skip
    trace = training(facts={**FACTS, "device": "cuda: NVIDIA H100"})
    machine = {**MACHINE, "gpu.0.model": "NVIDIA H100", "gpu.0.ecc": "Enabled"}
    of_cpu, of_gpu = facts_of(training()).keys(), facts_of(trace, machine=machine).keys()
    assert of_gpu - of_cpu == {"cpu-model", "gpu.0.uuid", "gpu.0.ecc"}


def test_variables_are_facts_but_flags_and_what_is_of_one_run_are_not() -> None:
    variables = {
        "CUDA_MODULE_LOADING": "LAZY",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "42",
        "OMP_NUM_THREADS": "2",
        "MASTER_PORT": "29500",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/repro-gate-a1b2c3d4/run/tmp/cache",
        "TRITON_CACHE_DIR": "/cache/repro-gate-project/x",
    }
    found = facts_of(replace(training(), variables=variables), machine={})
    assert found == {
        "variable/CUDA_MODULE_LOADING": "LAZY",
        "variable/TRITON_CACHE_DIR": "/cache/repro-gate-project/x",
    }


def test_a_fact_on_which_processes_differ_is_left_out() -> None:
    assert facts_of(training(), machine={}) == {}
    ranks = [
        replace(
            training(key=f"rank{rank}"),
            variables={"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": str(rank)},
        )
        for rank in (0, 1)
    ]
    assert facts_of(*ranks, machine={}) == {"variable/NCCL_DEBUG": "WARN"}
