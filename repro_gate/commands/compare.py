"""`repro-gate compare A B`: two reports, two folders of traces, or two checkpoints (any files, or
folders of them); of two other files that carry a config hash, the inputs. Three or more reports are
a fleet's: see `fleet`.

Of two reports a table says what changed, whether or not they can be compared bit for bit. Exit code
0 where both trained the same, 1 where they differ, 2 where one of them cannot be read.
"""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec

from repro_gate.baseline.config_hash import ConfigHash, changed_inputs, made_again
from repro_gate.baseline.file import read_baseline
from repro_gate.commands import output
from repro_gate.commands.fleet import compare_traces, fleet_command
from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.compare.fingerprint import ANY, compare_fingerprints
from repro_gate.compare.model import Comparison, Divergence, Tally
from repro_gate.errors import UsageError
from repro_gate.escape import and_more, clip, for_terminal
from repro_gate.files import scratch_folder
from repro_gate.probe.artifacts import METADATA
from repro_gate.report import comparisons, matrix, wording
from repro_gate.report.document import (
    ReportError,
    load,
    read_json,
    render,
    to_text,
    validate,
)
from repro_gate.report.model import SCHEMA_ID
from repro_gate.report.wording import plain_text
from repro_gate.runs.artifacts import in_place
from repro_gate.runs.interpreter import Interpreter
from repro_gate.runs.reading import MAX_SECONDS, read
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.reexec import taken_out

_MOST_SHOWN = 20


def compare_command(options: Namespace) -> int:
    """Compare what stands at two paths, print what differs, and return the exit code. Raises
    GateError for what cannot be read."""
    if len(options.paths) != 2 or options.markdown or options.html or options.nodes:
        return fleet_command(options)
    a, b = options.paths
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
        comparison = compare_traces(a, b)
    elif _is_report(a) and _is_report(b):
        reports = load(a), load(b)
        table = matrix.between(*reports, (str(a), str(b)), output.view())
        output.print_guarded(f"{table}\n")
        first, second = (report.fingerprint for report in reports)
        if first is None or second is None:
            raise UsageError(
                "a report without a fingerprint cannot be compared: its runs did not come to an end"
            )
        comparison = compare_fingerprints(first, second)
    elif (one := _config_hash(a)) and (other := _config_hash(b)):
        changed = changed_inputs(one, other)
        output.write(out, to_text({"changed_inputs": msgspec.to_builtins(changed)}))
        lines = [plain_text(comparisons.move(item)) for item in changed]
        for line in lines or ["same config hash: no input differs"]:
            output.say(line)
        return 1 if changed else 0
    else:
        comparison = _files(a, b, options.python or "python3")
    output.write(out, render(comparison))
    _print(comparison)
    return 0 if comparison.identical else 1


def _is_report(path: Path) -> bool:
    """Return whether a file says in its first 16 MB that it is one of our reports."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return f'"{SCHEMA_ID}"'.encode() in file.read(16 * 1024 * 1024)


def _config_hash(path: Path) -> ConfigHash | None:
    """Return the config hash of a baseline, a report or a file of `check --inputs --json`; None if
    it is none of them, or has none. Raises UsageError for a hash that its inputs do not give, and
    for those of several platforms."""
    name = for_terminal(str(path), 200)
    if path.name.endswith(("baseline.yml", "baseline.yaml")):
        entries = [*read_baseline(path).values()]
        if len(entries) == 1:
            return entries[0]
        raise UsageError(
            f"{name}: records {len(entries)} platforms, so it has no one config hash",
            reason_id="config-hash/none",
            remedy="name a report.json of the platform",
        )
    if path.suffix != ".json":
        return None
    try:
        document = read_json(path)
        if isinstance(document, dict) and document.get("schema") == SCHEMA_ID:
            document = document.get("config_hash")
        return made_again(validate(document, ConfigHash, name))
    except ReportError:
        return None
    except UsageError as error:
        message = f"{name}: {for_terminal(error.message, 600)}"
        raise UsageError(
            message, remedy=error.remedy, reason_id=error.reason_id
        ) from None


def _files(a: Path, b: Path, python: str) -> Comparison:
    """Compare two checkpoints or other files; the shards that an index names beside it, one by
    one."""
    with scratch_folder() as place:
        sides = in_place(a), in_place(b)
        for file in chain(*sides):
            if file.problem:
                raise UsageError(f"{file.name}: {file.problem}")
        if len(sides[0]) != len(sides[1]):
            raise UsageError(
                f"{a} and {b}: {len(sides[0])} files cannot be compared with {len(sides[1])}"
            )
        (place / "empty").mkdir()
        environment = dict(os.environ)
        for name in taken_out(environment):
            del environment[name]
        items = [*chain(*zip(*sides, strict=True))]
        interpreter = Interpreter(python, environment, Sandbox(), place)
        read_in, distances = read(items, interpreter, MAX_SECONDS, pairs=True)
    differences: list[Divergence] = []
    notes: list[str] = []
    count = 0
    for number in range(1, len(items), 2):
        first, second = read_in[number - 1 : number + 1]
        count += len(first.leaves.keys() | second.leaves.keys())
        shard = f"{items[number - 1].name}: " if len(items) > 2 else ""
        for item in compare_artifacts(first, second, "", -1):
            distance = distances.get((number, item.name))
            far = vars(distance) if distance else {}
            differences.append(replace(item, name=shard + item.name, **far))
        notes += (first.note, second.note) if differences else ()
    for note in dict.fromkeys(filter(None, notes)):
        output.say(f"note: {note}", 600)
    return Comparison(
        identical=not differences,
        steps=0,
        tensors=count,
        differing=len(differences),
        first_divergence=next(iter(differences), None),
        by_kind={"artifact": Tally(count, len(differences))},
        weights=tuple(differences),
    )


def _print(comparison: Comparison) -> None:
    steps = comparison.steps
    if comparison.identical:
        what = f"quantities, {steps} steps" if steps else "values"
        output.say(f"same: {comparison.tensors} {what}")
        return
    first = comparison.first_divergence
    if first is not None and first.kind != "artifact":
        output.say(f"differ: {plain_text(wording.where(first))}: {_how_far(first)}")
    if first is not None and (first.name == ANY or not comparison.differing):
        differing = sum(step >= 0 for step, _ in comparison.by_step)
        output.say(f"{differing} of the {steps} steps that both have differ")
    else:
        output.say(plain_text(wording.spread(comparison)))
    for item in comparison.weights[:_MOST_SHOWN]:
        output.say(f"  {for_terminal(item.name, 200)}: {_how_far(item)}")
    if more := and_more(len(comparison.weights) - _MOST_SHOWN):
        output.say(f"  {more}")


def _how_far(item: Divergence) -> str:
    return clip(plain_text(wording.how_far(item)), 1_200) or "digests differ"
