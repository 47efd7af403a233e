"""DataLoaders are named by their number, and by their process where several trained."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.checks.interface import by_loader
from repro_gate.trace.model import LoaderSeen, Trace
from tests.support.built_traces import run, training


def names(*traces: Trace) -> list[str]:
    found = by_loader(
        run("deterministic-1", *traces),
        lambda trace: ((item.number, item) for item in trace.loaders),
    )
    return [f"{name} ({item.workers})" for name, item in found]


def test_the_process_is_named_where_there_are_several() -> None:
    seen = [LoaderSeen(0, 2, None), LoaderSeen(1, 0, 7)]
    assert names(replace(training(), loaders=seen)) == ["loader 0 (2)", "loader 1 (0)"]
    ranks = (replace(training(key=f"rank{number}"), loaders=seen[:1]) for number in (0, 1))
    assert names(*ranks) == ["rank0: loader 0 (2)", "rank1: loader 0 (2)"]
    assert names(training()) == []
