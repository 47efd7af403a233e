"""`repro-gate compare REPORT REPORT REPORT …`: which of many nodes computes other bits than most.

Reports are read one at a time, and little is kept of each, so that a thousand take no more memory
than ten. Where a group first differs, the traces say that `run --keep-traces DIR/NAME` left beside
`DIR/NAME.json`, or two of the reports, which are read again.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from sys import intern

from repro_gate.baseline.config_hash import RECIPE, ConfigHash, changed_inputs
from repro_gate.commands import output
from repro_gate.compare.fingerprint import compare_fingerprints
from repro_gate.compare.fleet import Record, fleet
from repro_gate.compare.model import Comparison, Divergence, Fingerprint
from repro_gate.compare.traces import compare_runs, other_digest
from repro_gate.errors import UsageError
from repro_gate.escape import clip, listed
from repro_gate.report import comparisons
from repro_gate.report.document import load
from repro_gate.report.fleet import on_terminal
from repro_gate.report.model import EXIT_CODES, Report
from repro_gate.report.wording import plain_text
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.model import TraceError
from repro_gate.trace.reader import read_folder

_FORMATS = {
    "json": "fleet:as_json",
    "markdown": "fleet:as_markdown",
    "html": "fleet:as_html",
}
_Result = tuple[Path, ConfigHash, Fingerprint]
_MAKE_TRACES = (
    "make traces with `repro-gate run --keep-traces "
    "FOLDER`, and name one run's folder in it"
)
_RUN = "deterministic-1"  # whose fingerprint a report holds
_INPUTS = 3  # named where recipes differ
_FACTS = 200  # of one report
_TEXT = 120  # characters of one fact


def fleet_command(options: Namespace) -> int:
    """Compare the reports of many nodes, print and write the answer, and return the exit code."""
    paths = options.paths
    if len(paths) < 2:
        raise UsageError(
            f"{paths[0]}: there is nothing to compare it with", remedy="name two paths"
        )
    files = output.files_of(options, paths, _FORMATS)
    output.remove(files)
    answer = fleet([*_records(paths)], _locate, options.nodes or 0)
    names = output.written(answer, files)
    output.print_guarded(on_terminal(answer, output.view()))
    is_whole = len(names) == len(files)
    return EXIT_CODES[answer.verdict] if is_whole else UsageError.exit_code


def _records(paths: Sequence[Path]) -> Iterator[Record]:
    """Yield what is kept of each report. Raises GateError for one that cannot be read, or cannot be
    compared with the first that has a result."""
    first: _Result | None = None
    for path in paths:
        report = load(path)
        pair = report.determinism
        bits = why = ""
        if report.config_hash and report.fingerprint:
            result = path, report.config_hash, report.fingerprint
            first = first or result
            _require_comparable(first, result)
            by_kind = report.fingerprint.by_kind
            # where all else is equal, nothing depends on the states of generators
            kinds = sorted(by_kind.keys() - {"rng"})
            bits = intern(" ".join(map(by_kind.__getitem__, kinds)))
        if not bits:
            reasons = (reason.message for reason in report.reasons)
            why = next(reasons, "its run recorded nothing to compare")
        yield Record(
            path=str(path),
            node=clip(report.subject.versions.get("host") or path.stem, _TEXT),
            bits=bits,
            why=clip(why, 4 * _TEXT),
            own=pair.first_divergence if pair else None,
            facts=_facts(report),
        )


def _require_comparable(one: _Result, other: _Result) -> None:
    """Raise UsageError for two recipes or other steps, and Inconclusive for two ways to digest
    tensors."""
    path, inputs, first = one
    other_path, other_inputs, second = other
    what = f"{path} and {other_path}"
    moves = [
        clip(plain_text(comparisons.move(item)), 4 * _TEXT)
        for item in changed_inputs(inputs, other_inputs)
        if item.root == RECIPE
    ]
    if moves:
        raise UsageError(
            f"{what} are of different recipes: {listed(moves, _INPUTS)}",
            remedy="compare nodes at one commit, with the same data, lockfile, seed and options",
        )
    # one may be longer
    steps = zip(first.by_step, second.by_step, strict=False)
    if any(ours[0] != theirs[0] for ours, theirs in steps):
        raise UsageError(f"{what} recorded other steps: is `capture.every` the same?")
    if first.digest != second.digest:
        raise other_digest(what, first.digest, second.digest)


def _facts(report: Report) -> dict[str, str]:
    """Return what is known of a node: inputs of the platform, and what training and gate read. Most
    is the same on each node."""
    platform = report.config_hash.inputs.platform if report.config_hash else {}
    known = {**platform, **report.subject.versions, **report.subject.machine}
    return {
        intern(clip(name, _TEXT)): intern(clip(str(value), _TEXT))
        for name, value in islice(known.items(), _FACTS)
        if name != "host" and value is not None
    }


def _locate(*sides: Sequence[Record]) -> Divergence | None:
    """Return where two groups first differ: by the traces that one of each kept, else by their
    fingerprints."""
    folders = (
        (Path(record.path).with_suffix("") / _RUN for record in side) for side in sides
    )
    one, other = (next(filter(Path.is_dir, side), None) for side in folders)
    found = None
    if one and other:
        found = compare_traces(one, other).first_divergence
    if found is None:
        first, second = (load(side[0].path).fingerprint for side in sides)
        assert first and second  # they have bits
        found = compare_fingerprints(first, second).first_divergence
    return found


def compare_traces(a: Path, b: Path) -> Comparison:
    """Compare the traces of two runs. Raises UsageError for a folder that holds none, or others."""
    sides = []
    for folder in (a, b):
        try:
            traces = read_folder(folder, None)
        except TraceError as error:
            remedy = "make the traces again"
            raise UsageError(f"{folder}: {error}", remedy=remedy) from None
        if not traces:
            inner = sorted(path.parent for path in folder.glob("*/*" + SUFFIX))
            remedy = (
                f"name one run of it, such as {inner[0]}" if inner else _MAKE_TRACES
            )
            raise UsageError(f"{folder}: holds no trace", remedy=remedy)
        sides.append(traces)
    return compare_runs(sides[0], sides[1])
