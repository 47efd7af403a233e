"""Two runs of one script with factors watched or pinned, each from a clean folder: what the tests
of the factors stand on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro_gate.runs.launch import Run
from repro_gate.trace.model import Used
from tests.support.tracing import trace_script

LIMIT = 60.0  # seconds, after which a run counts as stuck


def watched_twice(folder: Path, source: str | Mapping[str, str], **options: Any) -> tuple[Run, Run]:
    """Two runs that end well, every use watched."""
    return twice(folder, source, {"watch": True}, **options)


def pinned_twice(
    folder: Path, source: str | Mapping[str, str], pin: Mapping[str, object], **options: Any
) -> tuple[Run, Run]:
    """Two runs that end well, `pin` pinned."""
    return twice(folder, source, {"pin": pin}, **options)


def twice(
    folder: Path, source: str | Mapping[str, str], factors: Mapping[str, object], **options: Any
) -> tuple[Run, Run]:
    """Two runs that end well, at the same paths."""
    return once(folder, source, factors, **options), once(folder, source, factors, **options)


def once(
    folder: Path, source: str | Mapping[str, str], factors: Mapping[str, object], **options: Any
) -> Run:
    """One run that ends well."""
    shutil.rmtree(folder / "place", ignore_errors=True)
    run = trace_script(folder, source, factors=factors, timeout=LIMIT, **options)
    assert run.ended.exit_code == 0, (run.problem, run.ended.tail)
    return run


def told(run: Run, factor: str | None = None) -> list[Used]:
    """What lines of the workspace used, in all processes."""
    return [
        use
        for trace in run.traces
        for use in trace.uses
        if use.file and factor in (None, use.factor)
    ]


def apart(runs: tuple[Run, Run]) -> list[bool]:
    """Which of the lines that two runs printed differ."""
    first, second = (run.ended.tail for run in runs)
    return [one != other for one, other in zip(first, second, strict=True)]


def same(runs: tuple[Run, Run]) -> tuple[str, ...]:
    """What two runs printed alike."""
    first, second = (run.ended.tail for run in runs)
    assert first == second
    return first
