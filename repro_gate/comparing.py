"""`repro-gate compare A B`: two reports, two folders of traces, or two checkpoints (any files) held against each other.

The same code as in `run`: traces by `analysis.compare`, files leaf by leaf by `trace.artifacts`, reports by the fingerprints they carry.
Exit code 0 where both are the same, 1 where they differ, 2 where one of them cannot be read.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.analysis.compare import compare_runs
from repro_gate.analysis.model import Comparison, Distance, Divergence, Tally
from repro_gate.errors import UsageError
from repro_gate.isolation.secret_names import taken_out
from repro_gate.report import sentences
from repro_gate.report.escape import for_log, for_terminal
from repro_gate.report.json_face import SCHEMA_ID, comparison_to_json, load
from repro_gate.series import as_divergence
from repro_gate.trace.artifacts import compare_artifacts, read_leaves
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.reader import TraceError, read_folder

_MEASURE = Path(__file__).resolve().parent / "probe" / "measure.py"
_MOST_SHOWN = 20


def compare_paths(a: Path, b: Path, python: str, out: Path | None) -> int:
    """Compare what stands at two paths, print what differs, and return the exit code. Raises GateError for what cannot be read."""
    for path in (a, b):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
    if a.is_dir() != b.is_dir():
        raise UsageError(f"{a} and {b}: a folder of traces can only be held against another", remedy="name two folders, or two files")
    if a.is_dir():
        comparison = _traces(a, b)
    elif _is_report(a) and _is_report(b):
        comparison = _reports(load(a), load(b))
    else:
        comparison = _files(a, b, python)
    if out is not None:
        try:
            out.write_text(json.dumps(comparison_to_json(comparison), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{out}: cannot be written: {error.strerror}", remedy="name a file in a folder that exists") from None
    _print(comparison)
    return 0 if comparison.identical else 1


def _traces(a: Path, b: Path) -> Comparison:
    runs = []
    for folder in (a, b):
        if not any(folder.glob("*" + SUFFIX)):
            inner = sorted(path.parent.name for path in folder.glob("*/*" + SUFFIX))
            raise UsageError(
                f"{folder}: holds no trace",
                remedy=f"name one run of it, such as {folder / inner[0]}"
                if inner
                else "make traces with `repro-gate run --keep-traces FOLDER`, and name one run's folder in it",
            )
        try:
            runs.append(read_folder(folder, None))
        except TraceError as error:
            raise UsageError(f"{folder}: {error}", remedy="make the traces again") from None
    return compare_runs(runs[0], runs[1])


def _is_report(path: Path) -> bool:
    """Whether a file says it is one of our reports (an untrusted file, so only its beginning and end are looked at)."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return f'"{SCHEMA_ID}"'.encode() in file.read(16 * 1024 * 1024)


def _reports(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparison:
    """Two reports by the fingerprints of their first deterministic runs: which step, and which kinds, but not which tensor."""
    first, second = a.get("fingerprint"), b.get("fingerprint")
    if first is None or second is None:
        raise UsageError("a report without a fingerprint cannot be compared: its runs did not come to an end")
    left, right = dict(map(tuple, first["by_step"])), dict(map(tuple, second["by_step"]))
    steps = sorted(left.keys() | right.keys())
    parted = [step for step in steps if left.get(step) != right.get(step)]
    by_kind = {
        kind: Tally(1, int(first["by_kind"].get(kind) != second["by_kind"].get(kind)))
        for kind in sorted(first["by_kind"] | second["by_kind"])
    }
    kinds = [kind for kind, tally in by_kind.items() if tally.differing]
    losses = _losses(a, b)
    divergence = (
        Divergence(parted[0], kinds[0] if kinds else "parameter", "(any)", detail=f"kinds that differ: {', '.join(kinds)}")
        if parted
        else None
    )
    return Comparison(
        not parted,
        max((step for step in steps), default=-1) + 1,
        len(by_kind),
        len(kinds),
        divergence,
        by_kind,
        tuple((step, 1) for step in parted),
        losses,
    )


def _losses(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[tuple[int, float, float], ...]:
    left, right = ({row[0]: float(row[1]) for row in ((report.get("determinism") or {}).get("losses") or [])} for report in (a, b))
    return tuple((step, left[step], right[step]) for step in sorted(left.keys() & right.keys()))


def _files(a: Path, b: Path, python: str) -> Comparison:
    first, second = read_leaves(a), read_leaves(b)
    for path, artifact in ((a, first), (b, second)):
        if artifact.format == "refused":
            raise UsageError(f"{path}: {artifact.note}")
    found = [as_divergence(item, -1) for item in compare_artifacts(first, second, "")]
    distances = _distances(a, b, [item.name for item in found if item.shape is not None and not item.detail], python) if found else {}
    found = [replace(item, distance=distances.get(item.name)) for item in found]
    tally = Tally(len(first.leaves.keys() | second.leaves.keys()), len(found))
    return Comparison(not found, 0, tally.tensors, tally.differing, found[0] if found else None, {"artifact": tally}, weights=tuple(found))


def _distances(a: Path, b: Path, names: Sequence[str], python: str) -> dict[str, Distance]:
    """Distances as an interpreter with torch measures them; empty where there is none, and then none is shown."""
    if not names:
        return {}
    secrets = taken_out(os.environ)
    try:
        done = subprocess.run(
            [python, str(_MEASURE), str(a.resolve()), str(b.resolve())],
            env={name: value for name, value in os.environ.items() if name not in secrets},
            input="".join(json.dumps(name) + "\n" for name in names),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return {
        name: Distance(max_abs, max_ulp, l2, l2 / norm if l2 is not None and norm else None) for name, max_abs, max_ulp, l2, norm in rows
    }


def _print(comparison: Comparison) -> None:
    if comparison.identical:
        _say(
            f"same: {comparison.tensors} quantities, {comparison.steps} steps" if comparison.steps else f"same: {comparison.tensors} leaves"
        )
        return
    first = comparison.first_divergence
    if first is not None and first.kind != "artifact":
        _say(f"differ: {_plain(sentences.where(first))}: {_plain(sentences.how_far(first)) or 'digests differ'}")
    _say(f"{_plain(sentences.spread(comparison))} ({sentences.kinds(comparison)})")
    for item in comparison.weights[:_MOST_SHOWN]:
        _say(f"  {for_terminal(item.name, 200)}: {_plain(sentences.how_far(item)) or 'digests differ'}")
    if len(comparison.weights) > _MOST_SHOWN:
        _say(f"  and {len(comparison.weights) - _MOST_SHOWN} more")


def _plain(phrase: sentences.Phrase) -> str:
    return "".join(for_terminal(words, 600) for _, words in phrase)


def _say(line: str) -> None:
    print(for_log(line, os.environ))
