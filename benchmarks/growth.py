"""How the work of the probe and of the gate grows: with parameters, tensors, steps and ranks, as
exponents fitted on a log-log scale.

The probe's work is one step: digests of parameters, gradients and two tensors of optimizer state
each, written to a trace. The gate's is reading the traces of two runs and comparing them. An
exponent of 1 is proportional; what does not depend on the size brings it below.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from repro_gate.compare.traces import compare_runs
from repro_gate.probe import digest
from repro_gate.runs.environment import EXTENSION
from repro_gate.trace.reader import read_folder
from repro_gate.trace.writer import TraceWriter

GOAL = 1.05  # the exponent may be 1; a fit over noisy times is no exact one
KINDS = ("parameter", "gradient", "optimizer", "optimizer")


@dataclass(frozen=True)
class Settings:
    """Sizes of each series, and rounds; the least time of a round counts."""

    elements: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    tensors: tuple[int, ...] = (50, 200, 800, 3_200)
    steps: tuple[int, ...] = (300, 1_200, 4_800)
    ranks: tuple[int, ...] = (1, 2, 4, 8)
    rounds: int = 5


QUICK = Settings((100, 1_000), (10, 20), (5, 10), (1, 2), 1)


def measure(settings: Settings) -> list[Figure]:
    """One exponent for each series, with the milliseconds beside it."""
    import torch

    digest.EXTENSION[:] = [EXTENSION]
    series: list[
        tuple[str, Sequence[int], Callable[[int, Path], Callable[[], object]]]
    ] = [
        (
            "probe, elements in each of 100 tensors",
            settings.elements,
            lambda size, at: _step(torch, at, 100, size),
        ),
        (
            "probe, tensors of 64 elements",
            settings.tensors,
            lambda size, at: _step(torch, at, size, 64),
        ),
        (
            "gate, tensors in 50 steps",
            settings.tensors,
            lambda size, at: _comparison(at, size, 50, 1),
        ),
        (
            "gate, steps of 200 tensors",
            settings.steps,
            lambda size, at: _comparison(at, 200, size, 1),
        ),
        (
            "gate, ranks of 200 tensors in 50 steps",
            settings.ranks,
            lambda size, at: _comparison(at, 200, 50, size),
        ),
    ]
    return [_fitted(name, sizes, make, settings.rounds) for name, sizes, make in series]


def _fitted(
    name: str,
    sizes: Sequence[int],
    make: Callable[[int, Path], Callable[[], object]],
    rounds: int,
) -> Figure:
    with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as root:
        calls = []
        for size in sizes:
            (at := Path(root) / str(size)).mkdir()
            calls.append(make(size, at))
        taken = [[_seconds(call) for call in calls] for _ in range(rounds)]
    slopes = tuple(
        statistics.linear_regression(
            [math.log(size) for size in sizes], [math.log(item) for item in row]
        ).slope
        for row in taken
    )
    milliseconds = [round(min(column) * 1e3, 3) for column in zip(*taken, strict=True)]
    return Figure(
        f"growth: {name}",
        "exponent",
        slopes,
        GOAL,
        {"sizes": list(sizes), "ms": milliseconds},
    )


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _step(torch: Any, at: Path, tensors: int, elements: int) -> Callable[[], object]:
    """One step of the probe: all kinds digested and written."""
    held = [[torch.randn(elements) for _ in range(tensors)] for _ in KINDS]
    rows = [
        tuple(
            (f"layer.{number}.weight", "float32", (elements,))
            for number in range(tensors)
        )
        for _ in KINDS
    ]
    writer = TraceWriter(str(at), {"nonce": "", "pid": 1, "argv": [], "forked": False})
    count = iter(range(1_000_000))

    def step() -> None:
        now = next(count)
        for kind, names, items in zip(KINDS, rows, held, strict=True):
            writer.block(now, kind, names, digest.begin(items))

    return step


def _comparison(at: Path, tensors: int, steps: int, ranks: int) -> Callable[[], object]:
    """Reading and comparing two equal runs of this size, in which every digest changes at every
    step."""
    rows = tuple(
        (f"layer.{number}.weight", "float32", (64,)) for number in range(tensors)
    )
    for run in ("a", "b"):
        (at / run).mkdir()
        for rank in range(ranks):
            writer = TraceWriter(
                str(at / run),
                {
                    "nonce": "",
                    "pid": 1,
                    "argv": [],
                    "forked": False,
                },
            )
            writer.event("facts", facts={"process": f"rank{rank}"})
            flags = writer.flags({})
            for step in range(steps):
                for kind in KINDS[:3]:
                    writer.block(
                        step,
                        kind,
                        rows,
                        (step * tensors).to_bytes(8, "little") * 2 * tensors,
                    )
                writer.event(
                    "step", step=step, ms=1.0, probe_ms=0.0, peak_bytes=0, flags=flags
                )
            writer.event("end", reason="exit", steps=steps)
    return lambda: compare_runs(
        read_folder(at / "a", None), read_folder(at / "b", None)
    )
