"""`repro-gate baseline`: gate the training, and where it passes, record its config hash and its
results in `repro.baseline.yml`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from repro_gate.baseline.file import dump_baseline, read_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline, Entry
from repro_gate.baseline.record import merge
from repro_gate.errors import GateError
from repro_gate.files import replace_file
from repro_gate.gate.options import Options
from repro_gate.gate.run import GateResult, gate
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import CostBudget


def baseline(
    path: Path, given: str, watch: Watch, *, cached: bool
) -> tuple[GateResult, Path | None]:
    """Gate the spec at `path` without measuring costs. The baseline is written, and its path given,
    only where the verdict is pass."""
    spec = load_spec(path)
    target = spec.path.parent / FILE_NAME
    before = read_baseline(target)
    options = Options(
        spec_as_given=given, record_baseline=True, cache=cached, sandbox=choose(os.environ)
    )
    result = gate(replace(spec, cost=CostBudget(measure=False)), options, watch)
    if result.report.verdict != "pass" or result.entry is None:
        return result, None
    write_baseline(target, before, result.entry)
    return result, target


def write_baseline(path: Path, before: Baseline | None, entry: Entry) -> None:
    """Record `entry` beside the other platforms' entries. The file is replaced whole or not at all.
    Raises GateError."""
    try:
        replace_file(path, dump_baseline(merge(before, entry)).encode(), 0o644)
    except OSError as error:
        raise GateError(
            f"{path}: cannot be written: {error.strerror}",
            remedy="see that the folder can be written to",
        ) from None
