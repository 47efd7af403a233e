"""`repro-gate compare A B`: two reports, two folders of traces, or two checkpoints (any files, or
folders of them).

Of two reports a table says what changed, whether or not they can be compared bit for bit. Exit code
0 where both trained the same, 1 where they differ, 2 where one of them cannot be read.
"""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from repro_gate.commands import output
from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.compare.model import KINDS, Comparison, Divergence, Tally
from repro_gate.compare.traces import compare_runs, other_digest, unequal_length
from repro_gate.errors import UsageError
from repro_gate.escape import and_more, for_log, for_terminal
from repro_gate.files import scratch_folder
from repro_gate.probe.artifacts import METADATA
from repro_gate.report import matrix, wording
from repro_gate.report.document import comparison_text, load
from repro_gate.report.model import SCHEMA_ID, Report
from repro_gate.runs.artifacts import in_place
from repro_gate.runs.interpreter import Interpreter
from repro_gate.runs.reading import MAX_SECONDS, as_divergence, read
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.reexec import taken_out
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.model import TraceError
from repro_gate.trace.reader import read_folder

_MAKE_TRACES = (
    "make traces with `repro-gate run --keep-traces "
    "FOLDER`, and name one run's folder in it"
)
_MOST_SHOWN = 20
_ANY = "(any)"  # the name of a divergence of which a report knows the step and the kind alone


def compare_command(options: Namespace) -> int:
    """Compare what stands at two paths, print what differs, and return the exit code. Raises
    GateError for what cannot be read."""
    a = options.a
    b = options.b
    out = options.json
    output.writable(out)
    for path in (a, b):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
    if a.is_dir() != b.is_dir():
        raise UsageError(
            f"{a} and {b}: a folder can only be compared with another",
            remedy="name two folders, or two files",
        )
    if a.is_dir() and not all((path / METADATA).is_file() for path in (a, b)):
        comparison = _traces(a, b)
    elif _is_report(a) and _is_report(b):
        reports = load(a), load(b)
        output.print_guarded(
            matrix.between(*reports, (str(a), str(b)), output.view()) + "\n"
        )
        comparison = _reports(*reports)
    else:
        comparison = _files(a, b, options.python or "python3")
    if out is not None:
        output.write(out, comparison_text(comparison))
    _print(comparison)
    return 0 if comparison.identical else 1


def _traces(a: Path, b: Path) -> Comparison:
    for folder in (a, b):
        if not any(folder.glob("*" + SUFFIX)):
            inner = sorted(path.parent for path in folder.glob("*/*" + SUFFIX))
            remedy = (
                f"name one run of it, such as {inner[0]}" if inner else _MAKE_TRACES
            )
            raise UsageError(f"{folder}: holds no trace", remedy=remedy)
    try:
        return compare_runs(
            read_folder(folder := a, None), read_folder(folder := b, None)
        )
    except TraceError as error:
        raise UsageError(f"{folder}: {error}", remedy="make the traces again") from None


def _is_report(path: Path) -> bool:
    """Return whether a file says in its first 16 MB that it is one of our reports."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return f'"{SCHEMA_ID}"'.encode() in file.read(16 * 1024 * 1024)


def _reports(a: Report, b: Report) -> Comparison:
    """Compare two reports by the fingerprints of their first deterministic runs: which step, and
    which kinds, but not which tensor.

    Steps that one report lacks are no differences. Kinds are digested over all steps, so they say
    nothing where the steps are not the same.
    """
    first = a.fingerprint
    second = b.fingerprint
    if first is None or second is None:
        raise UsageError(
            "a report without a fingerprint cannot be compared: its runs did not come to an end"
        )
    if first.digest != second.digest:
        raise other_digest("the reports' fingerprints", first.digest, second.digest)
    left = dict(first.by_step)
    right = dict(second.by_step)
    shared = sorted(left.keys() & right.keys())
    differing = [step for step in shared if left[step] != right[step]]
    equal_length = left.keys() == right.keys()
    recorded = first.by_kind.keys() | second.by_kind.keys() if equal_length else ()
    by_kind = {
        kind: Tally(1, int(first.by_kind.get(kind) != second.by_kind.get(kind)))
        for kind in KINDS
        if kind in recorded
    }
    kinds = [kind for kind, tally in by_kind.items() if tally.differing]
    first_divergence = None
    if differing:
        detail = f"kinds that differ in any step: {', '.join(kinds)}" if kinds else ""
        first_divergence = Divergence(
            step=differing[0],
            kind=kinds[0] if kinds else "parameter",
            name=_ANY,
            detail=detail,
        )
    elif not equal_length:
        first_divergence = unequal_length(
            sum(step >= 0 for step in left), sum(step >= 0 for step in right)
        )
    return Comparison(
        identical=first_divergence is None,
        steps=sum(step >= 0 for step in shared),
        tensors=len(by_kind),
        differing=len(kinds),
        first_divergence=first_divergence,
        by_kind=by_kind,
        by_step=tuple((step, 1) for step in differing),
    )


def _files(a: Path, b: Path, python: str) -> Comparison:
    """Compare two checkpoints or other files; the shards that an index names beside it, one by
    one."""
    with scratch_folder() as place:
        sides = in_place(a), in_place(b)
        if problem := next(
            (item for side in sides for item in side if item.problem), None
        ):
            raise UsageError(f"{problem.name}: {problem.problem}")
        if len(sides[0]) != len(sides[1]):
            raise UsageError(
                f"{a} and {b}: {len(sides[0])} files cannot be compared with {len(sides[1])}"
            )
        (place / "empty").mkdir()
        secrets = taken_out(os.environ)
        environment = {
            name: value for name, value in os.environ.items() if name not in secrets
        }
        items = [item for pair in zip(*sides, strict=True) for item in pair]
        read_in, distances = read(
            items,
            Interpreter(python, environment, Sandbox(), place),
            MAX_SECONDS,
            pairs=True,
        )
    differences: list[Divergence] = []
    notes: list[str] = []
    count = 0
    for number in range(1, len(items), 2):
        first, second = read_in[number - 1 : number + 1]
        count += len(first.leaves.keys() | second.leaves.keys())
        name = items[number - 1].name if len(items) > 2 else ""
        for difference in compare_artifacts(first, second, name):
            item = as_divergence(difference, -1)
            distance = distances.get((number, difference.leaf))
            differences.append(replace(item, **vars(distance)) if distance else item)
        notes += filter(None, (first.note, second.note) if differences else ())
    for note in dict.fromkeys(notes):
        _say(f"note: {for_terminal(note, 600)}")
    tally = Tally(count, len(differences))
    return Comparison(
        identical=not differences,
        steps=0,
        tensors=count,
        differing=len(differences),
        first_divergence=differences[0] if differences else None,
        by_kind={"artifact": tally},
        weights=tuple(differences),
    )


def _print(comparison: Comparison) -> None:
    if comparison.identical:
        what = f"quantities, {comparison.steps} steps" if comparison.steps else "values"
        _say(f"same: {comparison.tensors} {what}")
        return
    first = comparison.first_divergence
    if first is not None and first.kind != "artifact":
        _say(f"differ: {_as_text(wording.where(first))}: {_how_far(first)}")
    if first is not None and (first.name == _ANY or not comparison.differing):
        differing = sum(step >= 0 for step, _ in comparison.by_step)
        _say(f"{differing} of the {comparison.steps} steps that both have differ")
    else:
        _say(f"{_as_text(wording.spread(comparison))} ({wording.kinds(comparison)})")
    for item in comparison.weights[:_MOST_SHOWN]:
        _say(f"  {for_terminal(item.name, 200)}: {_how_far(item)}")
    if more := and_more(len(comparison.weights) - _MOST_SHOWN):
        _say(f"  {more}")


def _how_far(item: Divergence) -> str:
    return _as_text(wording.how_far(item)) or "digests differ"


def _as_text(phrase: wording.Phrase) -> str:
    return "".join(for_terminal(words, 600) for _, words in phrase)


def _say(line: str) -> None:
    print(for_log(line))
