"""How the checks name the DataLoaders of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from repro_gate.compare.traces import processes
from repro_gate.runs.launch import Run
from repro_gate.trace.model import Trace

Seen = TypeVar("Seen")


def by_loader(run: Run, seen: Callable[[Trace], Iterable[tuple[int, Seen]]]) -> Iterator[tuple[str, Seen]]:
    """What `seen` finds in each process, as (number of the loader, item): `loader 0`, or `rank1: loader 0` where several trained."""
    traced = processes(run.traces)
    for label, trace in traced.items():
        for number, item in seen(trace):
            yield (f"{label}: loader {number}" if len(traced) > 1 else f"loader {number}"), item
