"""What a measurement hands back, how it is printed, and what is written down about the machine it
was taken on.

Every file of this folder that measures is a module with a frozen `Settings` (its defaults are what
is published, `QUICK` is a smoke run) and `measure(settings) -> list[Figure]`. Ratios are taken
within one round, so that a machine that slows down slows both sides.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from repro_gate.files import replace_file
from repro_gate.runs.environment import usable_processors

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    """One figure: a value for each round, and beside it what it was computed from. `goal` is the
    largest median that is good enough; with `at_least`, the smallest."""

    name: str
    unit: str  # `ratio`, `MiB`, `GB/s`, `ms`, `s`
    values: tuple[float, ...]
    goal: float | None = None
    beside: Mapping[str, object] = field(default_factory=dict)
    at_least: bool = False

    @property
    def median(self) -> float:
        """The figure itself; least and greatest value say how far to trust it."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median keeps to the goal; None where there is no goal."""
        if self.goal is None:
            return None
        return self.median >= self.goal if self.at_least else self.median <= self.goal


def show(figure: Figure) -> str:
    """One line: name, median, spread, number of rounds, goal."""
    least, greatest = min(figure.values), max(figure.values)
    spread = (
        f"{figure.median:8.3f} {figure.unit:5}  ({least:.3f} … {greatest:.3f}, "
        f"n={len(figure.values)})"
    )
    goal = (
        ""
        if figure.goal is None
        else f"  goal {'≥' if figure.at_least else '≤'} {figure.goal:g}: "
        f"{'met' if figure.met else 'NOT met'}"
    )
    return f"  {figure.name:58} {spread}{goal}"


def to_json(figure: Figure) -> dict[str, Any]:
    """The figure as it stands in a results file; floats keep six significant digits."""
    return {
        "name": figure.name,
        "unit": figure.unit,
        "median": _rounded(figure.median),
        "min": _rounded(min(figure.values)),
        "max": _rounded(max(figure.values)),
        "values": _rounded(list(figure.values)),
        "goal": figure.goal,
        "at_least": figure.at_least,
        "met": figure.met,
        "beside": _rounded(dict(figure.beside)),
    }


def from_json(item: Mapping[str, Any]) -> Figure:
    """A figure of a results file."""
    return Figure(
        item["name"],
        item["unit"],
        tuple(item["values"]),
        item["goal"],
        item["beside"],
        at_least=item["at_least"],
    )


def write_results(
    path: Path,
    quick: bool,
    machine: Mapping[str, object],
    figures: Mapping[str, Sequence[Figure]],
    **more: object,
) -> None:
    """Write one results file, whole or not at all. `figures` holds the figures of each measurement
    by its module's name, `more` what else stands there."""
    taken = {
        name: [to_json(figure) for figure in found] for name, found in figures.items()
    }
    document = {
        "taken": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _commit(),
        "quick": quick,
        "machine": machine,
        "figures": taken,
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, content.encode(), 0o644)


def describe_machine() -> dict[str, object]:
    """CPU model, processors this process may use, memory in GiB, load before the first measurement,
    Python and torch."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _cpu_model(),
        "processors": usable_processors(),
        "memory_gib": round(memory, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_model() -> str:
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if sys.platform == "linux"
        else []
    )
    return next(
        (
            line.partition(":")[2].strip()
            for line in lines
            if line.startswith("model name")
        ),
        platform.processor() or "unknown",
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
