"""Claims about the bits that a run ended with: every final bit moves a digest, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from repro_gate.baseline.model import MAX_CURVE
from repro_gate.baseline.record import outside_facts, result_of
from repro_gate.compare.artifacts import Artifact, Leaf
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace
from tests.support.built_traces import FACTS, block, changed, flip, place_of, run, training, with_loss


def leaf(value: object) -> Leaf:
    return Leaf(kind="number", dtype=type(value).__name__, shape=None, digest=repr(value))


FILE = Artifact(format="json", digest="aa", leaves={"loss": leaf(1), "name": leaf("x")}, structure="s")


def with_end(trace: Trace, seed: object = 42) -> Trace:
    """The trace of a training that came to its end: the probe digests parameters and optimizer state once more."""
    end = len(trace.steps)
    return replace(trace, blocks=[*trace.blocks, block(end, "parameter", seed=seed), block(end, "optimizer", seed=seed)])


def every(trace: Trace, n: int) -> Trace:
    """What the same training records under `capture.every: n`: losses always, the rest at every n-th step, at the start and at the end."""
    end = len(trace.steps)
    kept = [item for item in trace.blocks if item.kind == "loss" or item.step < 0 or item.step % n == 0 or item.step == end]
    return replace(trace, blocks=kept)


def at(step: int, kind: str, row: int = 0) -> Callable[[Trace], Trace]:
    return lambda trace: changed(trace, place_of(trace, step, kind), flip(row))


def test_an_outcome_says_what_is_known_of_the_run() -> None:
    found = result_of(run("deterministic-1", training(3)), {"out/a.json": FILE})
    assert (found.seed, found.steps, [*found.artifacts]) == (42, 3, ["out/a.json"])
    assert found.curve == {0: 1.0, 1: 0.5, 2: 1 / 3}
    digests = [found.losses, found.weights, found.optimizer, *found.artifacts.values()]
    assert all(isinstance(item, str) and len(item) == 71 and item.startswith("sha256:") for item in digests)
    assert len(set(digests)) == 4


def test_two_runs_of_the_same_bits_have_one_outcome() -> None:
    assert result_of(run("deterministic-1", training()), {"a": FILE}) == result_of(run("deterministic-2", training()), {"a": FILE})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (at(2, "loss"), "losses"),
        (at(2, "parameter", 0), "weights"),
        (at(2, "parameter", 1), "weights"),
        (at(2, "buffer"), "weights"),
        (at(2, "optimizer"), "optimizer"),
    ],
)
def test_each_final_bit_moves_its_own_digest_and_no_other(change: Callable[[Trace], Trace], part: str) -> None:
    before, after = (result_of(run("deterministic-1", trace), {}) for trace in (training(), change(training())))
    assert {name for name in ("losses", "weights", "optimizer") if getattr(before, name) != getattr(after, name)} == {part}


@pytest.mark.parametrize(
    "change", [at(0, "parameter"), at(2, "gradient"), at(2, "batch"), at(2, "rng"), at(1, "optimizer"), at(-1, "parameter")]
)
def test_what_is_not_the_end_of_it_moves_nothing(change: Callable[[Trace], Trace]) -> None:
    assert result_of(run("deterministic-1", change(training())), {}) == result_of(run("deterministic-1", training()), {})


def test_a_row_of_another_name_or_type_is_another_outcome() -> None:
    def renamed(old: Block) -> Block:
        return replace(old, rows=tuple((f"model.{row[0]}", *row[1:]) for row in old.rows))

    def retyped(old: Block) -> Block:
        return replace(old, rows=tuple((row[0], "float64", row[2]) for row in old.rows))

    for change in (renamed, retyped):
        trace = changed(training(), place_of(training(), 2, "parameter"), change)
        assert result_of(run("deterministic-1", trace), {}).weights != result_of(run("deterministic-1", training()), {}).weights


@pytest.mark.parametrize("n", [2, 3, 7, 100])
def test_how_often_digests_were_taken_does_not_count(n: int) -> None:
    whole = with_end(training(10))
    assert result_of(run("deterministic-1", every(whole, n)), {}) == result_of(run("deterministic-1", whole), {})
    other = with_end(training(10), seed="other")
    assert result_of(run("deterministic-1", every(other, n)), {}).weights != result_of(run("deterministic-1", whole), {}).weights


def test_the_order_in_which_tensors_were_recorded_does_not_count() -> None:
    def turned(old: Block) -> Block:
        halves = [old.digests[place : place + 16] for place in range(0, len(old.digests), 16)]
        return replace(old, rows=tuple(reversed(old.rows)), content=b"".join(reversed(halves)))

    trace = changed(training(), place_of(training(), 2, "parameter"), turned)
    assert result_of(run("deterministic-1", trace), {}) == result_of(run("deterministic-1", training()), {})


def test_two_losses_of_one_step_both_count() -> None:
    second = block(2, "loss", at=1, values=(0.25,))
    trace = training()
    both = replace(trace, blocks=[*trace.blocks, second])
    other = replace(trace, blocks=[*trace.blocks, flip(0)(second)])
    digests = {result_of(run("deterministic-1", item), {}).losses for item in (trace, both, other)}
    assert len(digests) == 3


def test_every_process_counts_by_its_name() -> None:
    pair = [training(key="rank0"), training(key="rank1", seed=7)]
    swapped = [training(key="rank0", seed=7), training(key="rank1")]
    assert result_of(run("deterministic-1", *pair), {}) == result_of(run("deterministic-1", *reversed(pair)), {})
    assert result_of(run("deterministic-1", *pair), {}).weights != result_of(run("deterministic-1", *swapped), {}).weights
    assert result_of(run("deterministic-1", *pair), {}).weights != result_of(run("deterministic-1", pair[0]), {}).weights


def test_values_recorded_by_hand_count_in_whichever_step_they_were_last() -> None:
    rows = (("accuracy", "float", ()),)
    trace = replace(training(0), blocks=[block(0, "parameter", rows), block(1, "parameter", (("weights", "float64", (3,)),))])
    moved = changed(trace, 0, flip(0))
    assert result_of(run("deterministic-1", trace), {}).weights != result_of(run("deterministic-1", moved), {}).weights
    earlier = replace(trace, blocks=[flip(0)(trace.blocks[0]), replace(trace.blocks[0], step=1), replace(trace.blocks[1], at=1)])
    assert result_of(run("deterministic-1", earlier), {}).weights == result_of(run("deterministic-1", trace), {}).weights


def test_nothing_of_a_kind_is_none_and_not_the_digest_of_nothing() -> None:
    trace = replace(training(), blocks=[item for item in training().blocks if item.kind == "batch"])
    found = result_of(run("deterministic-1", trace), {})
    assert (found.losses, found.weights, found.optimizer, found.loss_curve) == (None, None, None, "")
    assert result_of(run("deterministic-1"), {}).steps == 0


@pytest.mark.parametrize(
    "change",
    [
        {"leaves": {"loss": leaf(2), "name": leaf("x")}},
        {"leaves": {"loss": leaf(1)}},
        {"leaves": {"loss": leaf(1), "title": leaf("x")}},
        {"structure": "t"},
        {"format": "opaque"},
    ],
)
def test_an_artifact_is_digested_by_its_leaves(change: dict[str, Any]) -> None:
    same = replace(FILE, digest="bb", leaves=dict(reversed([*FILE.leaves.items()])))
    before, again, after = (
        result_of(run("deterministic-1", training()), {"a": item}).artifacts["a"] for item in (FILE, same, replace(FILE, **change))
    )
    assert before == again != after


@pytest.mark.parametrize("steps", [1, 2, 99, 100, 101, 200, 1_000, 12_345])
def test_a_curve_is_short_even_and_ends_with_the_last_loss(steps: int) -> None:
    trace = Trace(path=training(0).path, blocks=[block(step, "loss", values=(float(step),)) for step in range(steps)], end="exit")
    curve = [*result_of(run("deterministic-1", trace), {}).curve.items()]
    assert len(curve) <= MAX_CURVE and curve[-1] == (steps - 1, float(steps - 1))
    assert len({b - a for (a, _), (b, _) in pairwise(curve[:-1])}) <= 1
    assert len(curve) >= min(steps, 40)


def test_curves_of_runs_of_different_length_share_steps() -> None:
    def curve(steps: int) -> set[int]:
        trace = Trace(path=training(0).path, blocks=[block(step, "loss", values=(1.0,)) for step in range(steps)], end="exit")
        return {*result_of(run("deterministic-1", trace), {}).curve}

    assert len(curve(180) & curve(900)) >= 10


def test_a_loss_that_is_no_number_stands_in_the_curve() -> None:
    found = result_of(run("deterministic-1", with_loss(training(), 2, float("nan"))), {})
    assert found.loss_curve.endswith("2 nan")


# Facts that are no inputs

MACHINE = {"kernel": "Linux 6.8", "libc": "glibc 2.39", "os": "Ubuntu 24.04", "cpu-model": "EPYC", "gpu.0.uuid": "GPU-1", "driver": "560"}


def test_imported_distributions_and_the_machine_are_facts() -> None:
    trace = replace(training(), distributions={"numpy": "2.1.0", "torch": "2.13.0"})
    assert outside_facts(run("deterministic-1", trace), MACHINE) == {
        "distribution/numpy": "2.1.0",
        "distribution/torch": "2.13.0",
        "kernel": "Linux 6.8",
        "libc": "glibc 2.39",
        "os": "Ubuntu 24.04",
    }


def test_on_a_gpu_the_cpu_lies_outside_the_inputs() -> None:
    trace = training(facts={**FACTS, "device": "cuda: NVIDIA H100"})
    found = outside_facts(run("deterministic-1", trace), {**MACHINE, "gpu.0.model": "NVIDIA H100", "gpu.0.ecc": "Enabled"})
    assert (found["cpu-model"], found["gpu.0.uuid"], found["gpu.0.ecc"]) == ("EPYC", "GPU-1", "Enabled")
    assert not {"driver", "gpu.0.model"} & found.keys()
    assert not {"driver", "gpu.0.uuid", "cpu-model"} & outside_facts(run("deterministic-1", training()), MACHINE).keys()


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
    found = outside_facts(run("deterministic-1", replace(training(), variables=variables)), {})
    assert found == {"variable/CUDA_MODULE_LOADING": "LAZY", "variable/TRITON_CACHE_DIR": "/cache/repro-gate-project/x"}


def test_a_fact_on_which_processes_differ_is_left_out() -> None:
    ranks = [replace(training(key=f"rank{rank}"), variables={"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": str(rank)}) for rank in (0, 1)]
    assert outside_facts(run("deterministic-1", *ranks), {}) == {"variable/NCCL_DEBUG": "WARN"}


def test_a_run_that_was_not_asked_has_no_distributions() -> None:
    assert outside_facts(run("deterministic-1", training()), {}) == {}
