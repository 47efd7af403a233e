"""`repro-gate compare A B`: two reports, two folders of traces, or two checkpoints (any files) compared with each other.

The same code as in `run`: traces by `compare.traces`, files leaf by leaf by `trace.artifacts`, reports by the fingerprints they carry.
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

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.compare.model import KINDS, Comparison, Distance, Divergence, Tally
from repro_gate.compare.traces import compare_runs, unequal_length
from repro_gate.errors import UsageError
from repro_gate.escape import for_log, for_terminal
from repro_gate.report import wording
from repro_gate.report.document import comparison_to_json, load
from repro_gate.report.schema import SCHEMA_ID
from repro_gate.runs.series import as_divergence
from repro_gate.sandbox.secret_names import taken_out
from repro_gate.trace.artifacts.read import read_leaves
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.model import TraceError
from repro_gate.trace.reader import read_folder

_MEASURE = Path(__file__).resolve().parents[1] / "probe" / "measure.py"
_MOST_SHOWN = 20
_ANY = "(any)"  # the name of a divergence of which a report knows the step and the kind alone


def compare_paths(a: Path, b: Path, python: str, out: Path | None) -> int:
    """Compare what stands at two paths, print what differs, and return the exit code. Raises GateError for what cannot be read."""
    for path in (a, b):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
    if a.is_dir() != b.is_dir():
        raise UsageError(f"{a} and {b}: a folder of traces can only be compared with another", remedy="name two folders, or two files")
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
    """Two reports by the fingerprints of their first deterministic runs: which step, and which kinds, but not which tensor.

    Steps that one report lacks are no differences. Kinds are digested over all steps, so they say nothing where the steps are not the same.
    """
    first, second = a.get("fingerprint"), b.get("fingerprint")
    if first is None or second is None:
        raise UsageError("a report without a fingerprint cannot be compared: its runs did not come to an end")
    left, right = dict(map(tuple, first["by_step"])), dict(map(tuple, second["by_step"]))
    shared = sorted(left.keys() & right.keys())
    differing = [step for step in shared if left[step] != right[step]]
    equal_length = left.keys() == right.keys()
    by_kind = {
        kind: Tally(1, int(first["by_kind"].get(kind) != second["by_kind"].get(kind)))
        for kind in (KINDS if equal_length else ())
        if kind in first["by_kind"] or kind in second["by_kind"]
    }
    kinds = [kind for kind, tally in by_kind.items() if tally.differing]
    found = None
    if differing:
        detail = f"kinds that differ in any step: {', '.join(kinds)}" if kinds else ""
        found = Divergence(differing[0], kinds[0] if kinds else "parameter", _ANY, detail=detail)
    elif not equal_length:
        found = unequal_length(sum(step >= 0 for step in left), sum(step >= 0 for step in right))
    return Comparison(
        found is None,
        len([step for step in shared if step >= 0]),
        len(by_kind),
        len(kinds),
        found,
        by_kind,
        tuple((step, 1) for step in differing),
        _losses(a, b),
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
            f"same: {comparison.tensors} quantities, {comparison.steps} steps" if comparison.steps else f"same: {comparison.tensors} values"
        )
        return
    first = comparison.first_divergence
    if first is not None and first.kind != "artifact":
        _say(f"differ: {_plain(wording.where(first))}: {_plain(wording.how_far(first)) or 'digests differ'}")
    if first is not None and (first.name == _ANY or not comparison.differing):
        _say(f"{sum(step >= 0 for step, _ in comparison.by_step)} of the {comparison.steps} steps that both have differ")
    else:
        _say(f"{_plain(wording.spread(comparison))} ({wording.kinds(comparison)})")
    for item in comparison.weights[:_MOST_SHOWN]:
        _say(f"  {for_terminal(item.name, 200)}: {_plain(wording.how_far(item)) or 'digests differ'}")
    if len(comparison.weights) > _MOST_SHOWN:
        _say(f"  and {len(comparison.weights) - _MOST_SHOWN} more")


def _plain(phrase: wording.Phrase) -> str:
    return "".join(for_terminal(words, 600) for _, words in phrase)


def _say(line: str) -> None:
    print(for_log(line, os.environ))
