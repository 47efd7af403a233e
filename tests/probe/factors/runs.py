"""Runs of one script with factors watched or pinned, each from a clean folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Used
from tests.support.tracing import trace_script

LIMIT = 300.0  # seconds, after which a run counts as stuck
Source = str | Mapping[str, str]


def watched_twice(folder: Path, source: Source, **options: Any) -> tuple[RunResult, RunResult]:
    """Two runs that end well, at the same paths, every use watched."""
    watch = {"watch": True}
    return once(folder, source, watch, **options), once(folder, source, watch, **options)


def pinned(folder: Path, source: Source, *factors: str, **options: Any) -> tuple[str, ...]:
    """What two runs print alike in which these factors are pinned as a whole."""
    pin = {"pin": dict.fromkeys(factors)}
    first, second = (once(folder, source, pin, **options).ended.tail for _ in range(2))
    assert first == second and first
    return first


def once(folder: Path, source: Source, factors: Mapping[str, object], **options: Any) -> RunResult:
    """One run that ends well."""
    shutil.rmtree(folder / "place", ignore_errors=True)
    run = trace_script(folder, source, factors=factors, timeout=LIMIT, **options)
    assert run.ended.exit_code == 0, (run.problem, run.ended.tail)
    return run


def uses_of(run: RunResult, factor: str | None = None) -> list[Used]:
    """What lines of the workspace used, in all processes."""
    uses = (use for trace in run.traces for use in trace.uses)
    return [use for use in uses if use.file and factor in (None, use.factor)]


def differing(runs: tuple[RunResult, RunResult]) -> list[bool]:
    """Which of the lines that two runs printed differ; they printed at least one."""
    first, second = (run.ended.tail for run in runs)
    assert first
    return [one != other for one, other in zip(first, second, strict=True)]
