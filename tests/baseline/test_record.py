"""Claims about the bits that a run ended with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from repro_gate.baseline.model import MAX_CURVE, RecordedResult
from repro_gate.baseline.record import outside_facts, result_of
from repro_gate.compare.artifacts import Artifact, Leaf
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Row
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
from tests.support.tracing import trace_script


def leaf(value: object) -> Leaf:
    return Leaf(kind="number", dtype=type(value).__name__, shape=None, digest=repr(value))


LEAVES = {"loss": leaf(1), "name": leaf("x")}
FILE = Artifact(format="json", digest="aa", leaves=LEAVES, structure="s")


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


def test_an_outcome_says_what_is_known_of_the_run_by_names_and_types() -> None:
    found = result_of(run("deterministic-1", training(3)), {"out/a.json": FILE})
    assert (found.seed, found.steps, [*found.artifacts]) == (42, 3, ["out/a.json"])
    assert found.loss_curve == {0: 1.0, 1: 0.5, 2: 1 / 3}
    digests = [found.losses, found.weights, found.optimizer, *found.artifacts.values()]
    assert len(set(digests)) == 4
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", str(item)) for item in digests)

    def turned(old: Block) -> Block:
        halves = [old.digests[place : place + 16] for place in range(0, len(old.digests), 16)]
        return replace(old, rows=tuple(reversed(old.rows)), content=b"".join(reversed(halves)))

    def with_rows(change: Callable[[Row], Row]) -> Callable[[Block], Block]:
        return lambda old: replace(old, rows=tuple(map(change, old.rows)))

    renamed = with_rows(lambda row: (f"model.{row[0]}", *row[1:]))
    retyped = with_rows(lambda row: (row[0], "float64", row[2]))
    before, place = of(training()), place_of(training(), 2, "parameter")
    for change, same in ((renamed, False), (retyped, False), (turned, True)):
        assert (of(changed(training(), place, change)).weights == before.weights) is same


def test_each_final_bit_moves_its_own_digest_and_no_other_bit_moves_any() -> None:
    for change, moved in (
        (at(2, "loss"), {"losses"}),
        (at(2, "parameter", 0), {"weights"}),
        (at(2, "parameter", 1), {"weights"}),
        (at(2, "buffer"), {"weights"}),
        (at(2, "optimizer"), {"optimizer"}),
        (at(0, "parameter"), set()),
        (at(2, "gradient"), set()),
        (at(2, "batch"), set()),
        (at(2, "rng"), set()),
        (at(1, "optimizer"), set()),
        (at(-1, "parameter"), set()),
    ):
        before, after = of(training()), of(change(training()))
        parts = ("losses", "weights", "optimizer")
        assert {name for name in parts if getattr(before, name) != getattr(after, name)} == moved
        assert moved or before == after


def test_digests_do_not_depend_on_how_often_and_in_what_order_they_were_taken() -> None:
    for n in (3, 100):
        whole = with_end(training(10))
        assert of(every(whole, n)) == of(whole)
        other = with_end(training(10), seed="other")
        assert of(every(other, n)).weights != of(whole).weights

    def digest_of(**change: object) -> str:
        artifact = replace(FILE, **change)  # type: ignore[arg-type]
        return result_of(run("deterministic-1", training()), {"a": artifact}).artifacts["a"]

    assert digest_of(digest="bb", leaves=dict(reversed([*FILE.leaves.items()]))) == digest_of()
    loss, name = LEAVES.items()
    others = ({"loss": leaf(2), "name": leaf("x")}, dict([loss]), dict([loss, ("title", name[1])]))
    digests = {digest_of(), digest_of(structure="t"), digest_of(format="opaque")}
    assert len(digests | {digest_of(leaves=leaves) for leaves in others}) == 6


def test_every_loss_process_and_value_counts_and_nothing_is_none() -> None:
    trace, second = training(), block(2, "loss", at=1, values=(0.25,))
    found = {of(trace).losses}
    for item in (second, flip(0)(second)):
        found.add(of(replace(trace, blocks=[*trace.blocks, item])).losses)
    assert len(found) == 3
    pair = [training(key="rank0"), training(key="rank1", seed=7)]
    swapped = [training(key="rank0", seed=7), training(key="rank1")]
    assert of(*pair) == of(*reversed(pair))
    assert len({of(*pair).weights, of(*swapped).weights, of(pair[0]).weights}) == 3
    first = block(0, "parameter", (("accuracy", "float", ()),))
    second = block(1, "parameter", (("weights", "float64", (3,)),))
    trace = replace(training(0), blocks=[first, second])
    assert of(trace).weights != of(changed(trace, 0, flip(0))).weights
    again = [flip(0)(first), replace(first, step=1), replace(second, at=1)]
    assert of(replace(trace, blocks=again)).weights == of(trace).weights
    batches = [item for item in training().blocks if item.kind == "batch"]
    found = of(replace(training(), blocks=batches))
    assert (found.losses, found.weights, found.optimizer) == (None, None, None)
    assert found.loss_curve == {} and of().steps == 0
    assert of(with_loss(training(), 2, float("nan"))).loss_curve[2] == "nan"


def curve_of(steps: int) -> Mapping[int, float | str]:
    blocks = [block(step, "loss", values=(float(step),)) for step in range(steps)]
    return of(Trace(path=training(0).path, blocks=blocks, end="exit")).loss_curve


@pytest.mark.parametrize(
    "steps", [1, MAX_CURVE - 1, MAX_CURVE, MAX_CURVE + 1, 2 * MAX_CURVE, 12_345]
)
def test_a_curve_is_short_even_and_ends_with_the_last_loss(steps: int) -> None:
    curve = [*curve_of(steps).items()]
    assert min(steps, 40) <= len(curve) <= MAX_CURVE
    assert curve[-1] == (steps - 1, float(steps - 1))
    assert len({b - a for (a, _), (b, _) in pairwise(curve[:-1])}) <= 1
    # curves of runs of different length share steps
    assert len(curve_of(180).keys() & curve_of(900)) >= 10


# Facts that are no inputs

MACHINE = {"kernel": "Linux 6.8", "libc": "glibc 2.39", "os": "Ubuntu 24.04"}
MACHINE |= {"cpu-model": "EPYC", "gpu.0.uuid": "GPU-1", "driver": "560"}


def facts_of(*traces: Trace, machine: Mapping[str, str] = MACHINE) -> Mapping[str, str]:
    return outside_facts(run("deterministic-1", *traces), machine)


def test_facts_are_what_is_no_input_and_the_same_in_each_process() -> None:
    found = facts_of(replace(training(), distributions={"numpy": "2.1.0"}))
    kept = {name: MACHINE[name] for name in ("kernel", "libc", "os")}
    assert found == {"distribution/numpy": "2.1.0", **kept}
    trace = training(facts={**FACTS, "device": "cuda: NVIDIA H100"})
    machine = {**MACHINE, "gpu.0.model": "NVIDIA H100", "gpu.0.ecc": "Enabled"}
    machine |= {"gpu.0.ecc-corrected": "3", "gpu.0.clock-sm": "1980 MHz"}  # other ones tomorrow
    of_cpu, of_gpu = facts_of(training()).keys(), facts_of(trace, machine=machine).keys()
    assert of_gpu - of_cpu == {"cpu-model", "gpu.0.uuid", "gpu.0.ecc"}
    kept = {"CUDA_MODULE_LOADING": "LAZY", "TRITON_CACHE_DIR": "/cache/repro-gate-project/x"}
    flags = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "42", "OMP_NUM_THREADS": "2"}
    own = {"LOCAL_RANK": "1", "TORCHINDUCTOR_CACHE_DIR": "/tmp/repro-gate-a1b2c3d4/run/tmp/x"}
    found = facts_of(replace(training(), variables={**kept, **flags, **own}), machine={})
    assert found == {f"variable/{name}": value for name, value in kept.items()}
    assert facts_of(training(), machine={}) == {}
    variables = ({"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": str(rank)} for rank in (0, 1))
    ranks = [replace(training(key=f"rank{n}"), variables=v) for n, v in enumerate(variables)]
    assert facts_of(*ranks, machine={}) == {"variable/NCCL_DEBUG": "WARN"}


# Real training under the real probe

SCRIPT = """
    import torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizers = [torch.optim.Adam(model[0].parameters(), fused=True), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)]
    for step in range(8):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizers[step % 2].step()
"""


@pytest.mark.slow
def test_real_training_has_one_outcome_however_often_it_is_digested(tmp_path: Path) -> None:
    always, seldom = (
        trace_script(tmp_path / str(every), SCRIPT, every=every, steps=6) for every in (1, 4)
    )
    assert always.good and seldom.good, (always.problem, seldom.problem)
    found = result_of(always, {})
    assert result_of(seldom, {}) == found and (found.steps, len(found.loss_curve)) == (6, 6)
    assert None not in (found.losses, found.weights, found.optimizer)
