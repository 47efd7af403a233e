"""DataLoaders are named by their number, and by their process where several trained."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.checks.interface import by_loader
from repro_gate.trace.model import Trace
from tests.support.built_traces import records, run, training


def names(*traces: Trace) -> list[str]:
    found = by_loader(
        run("deterministic-1", *traces),
        lambda trace: ((item.loader, item) for item in trace.records),
    )
    return [f"{name} ({item.role})" for name, item in found]


def test_the_process_is_named_where_there_are_several() -> None:
    drew = [records(0, "train", range(3)), records(2, "evaluation", range(3))]
    assert names(replace(training(), records=drew)) == ["loader 0 (train)", "loader 2 (evaluation)"]
    ranks = (replace(training(key=f"rank{number}"), records=drew[:1]) for number in (0, 1))
    assert names(*ranks) == ["rank0: loader 0 (train)", "rank1: loader 0 (train)"]
    assert names(training()) == []
