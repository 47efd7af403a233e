"""Reads the content of artifacts whose bytes differ between two runs. The training's interpreter
does it as the training's user; its answer is untrusted and read within limits. A file that it
cannot read is compared by its bytes, and the report says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, structs

from repro_gate.compare.artifacts import Artifact, Leaf, Pair, compare_artifacts, paired
from repro_gate.compare.model import Count, Distance, Divergence
from repro_gate.errors import Inconclusive
from repro_gate.files import make_folder, remove_tree
from repro_gate.probe import artifacts as program
from repro_gate.probe.contents import MAX_LEAVES, MAX_NAME, MAX_SIZE, MAX_VALUE
from repro_gate.runs.artifacts import FILE, Collected
from repro_gate.runs.interpreter import (
    ASK,
    MAX_ANSWER,
    Interpreter,
    NoAnswer,
    ask,
    prepared,
    training_interpreter,
)
from repro_gate.runs.workspaces import GateFolder
from repro_gate.sandbox.identity import chown_to_training
from repro_gate.spec.model import Spec

# Time for reading all artifacts of one series of runs. Files that are not read by then are compared
# by their bytes.
MAX_SECONDS = 600.0
_LATE = (
    f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over"
)


@dataclass
class ArtifactReader:
    """Reads the artifacts of one series, each once, and remembers their content. `notes` name those
    that could not be read."""

    spec: Spec
    folder: GateFolder
    notes: list[str] = field(default_factory=list)
    by_path: dict[Path, Artifact] = field(default_factory=dict)
    seconds: float = MAX_SECONDS  # that are left

    def contents(self, items: Sequence[Collected]) -> list[Artifact]:
        """Return the content of these artifacts. Those that were not read before are read in one
        start of the training's interpreter, and then removed."""
        waiting = [item for item in items if item.path not in self.by_path]
        if waiting:
            began = monotonic()
            for item, artifact in zip(waiting, self._read(waiting), strict=True):
                self.by_path[item.path] = artifact
                if artifact.note:
                    self.notes.append(f"artifact {item.name}: {artifact.note}")
            self.seconds -= monotonic() - began
        return [self.by_path[item.path] for item in items]

    def _read(self, items: Sequence[Collected]) -> list[Artifact]:
        sandbox = self.folder.sandbox
        folder = make_folder(self.folder.path / "reading")
        environment = prepared(self.spec, self.folder.outer, sandbox, folder)
        # of a training that needs none, files are compared by their bytes
        python = "python"
        with suppress(Inconclusive):
            python = training_interpreter(self.spec, environment)
        files = make_folder(folder / "files")
        moved = []
        for number, item in enumerate(items):
            target = files / f"{number:04d}{item.path.suffix}"
            moved.append(replace(item, path=item.path.rename(target)))
        chown_to_training(sandbox, files)
        interpreter = Interpreter(python, environment, sandbox, folder)
        found, _ = read(moved, interpreter, self.seconds)
        remove_tree(folder)
        return found


@dataclass(frozen=True)
class Uncompared:
    """An artifact that was not compared, the glob that matched it, and why. `no_file`: in neither
    run is it a file, so no comparison was missed; otherwise a copy failed."""

    name: str
    glob: str
    why: str
    no_file: bool


def pairs(a: Mapping[str, Collected], b: Mapping[str, Collected]) -> list[Pair]:
    """Return which artifacts of two runs are compared."""
    globs = ({name: item.glob for name, item in side.items()} for side in (a, b))
    return paired(*globs)


def differences(
    a: Mapping[str, Collected],
    b: Mapping[str, Collected],
    reader: ArtifactReader,
    step: int,
) -> tuple[list[Divergence], int, list[Uncompared]]:
    """Compare two runs' artifacts. Return the differences as divergences at `step`, the number of
    values compared, and the artifacts that could not be compared. A file with equal bytes is not
    read and counts as one value."""
    found = []
    uncompared = []
    names = []
    others = list[Collected]()
    values = 0
    for name, ours, theirs in pairs(a, b):
        first = a.get(ours)
        second = b.get(theirs)
        if first and second and name not in (ours, first.glob):
            note = (
                f"capture.artifacts {first.glob!r} matches several files, by other names in each "
                "run: they are compared in the order of what its wildcards matched"
            )
            reader.notes += [note] * (note not in reader.notes)
        answer = _without_reading(name, first, second)
        if isinstance(answer, Uncompared):
            uncompared.append(answer)
        elif answer:
            found.append(
                Divergence(step=step, kind="artifact", name=name, detail=answer)
            )
        elif first and second and first.digest != second.digest:
            names.append(name)
            others += first, second
        else:
            values += 1
    contents = reader.contents(others)
    for name, left, right in zip(names, contents[::2], contents[1::2], strict=True):
        found += compare_artifacts(left, right, name, step)
        values += len(left.leaves)
    found.sort(key=lambda item: item.name.partition(": ")[0])
    return found, values, uncompared


def _without_reading(
    name: str, first: Collected | None, second: Collected | None
) -> str | Uncompared:
    """Return how two artifacts differ, or why they cannot be compared; empty if both are files."""
    if first is None or second is None:
        return f"written by the {'first' if first else 'second'} run only"
    if problem := first.problem or second.problem:
        which = f"the {'first' if first.problem else 'second'} run"
        if first.problem == second.problem:
            which = "both runs"
        why = f"in {which} {problem}"
        return Uncompared(name, first.glob, why, no_file=False)
    kinds = f"a {first.kind} in the first run, a {second.kind} in the second"
    is_alike = first.kind == second.kind
    if FILE in (first.kind, second.kind):
        return "" if is_alike else kinds
    why = f"in both runs it is a {first.kind}" if is_alike else f"it is {kinds}"
    return Uncompared(name, first.glob, why, no_file=True)


# The interpreter's answer: each line is one of these.

_Name = Annotated[str, Meta(max_length=MAX_NAME)]
_Short = Annotated[str, Meta(max_length=MAX_VALUE)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{32,64}\Z")]
_Size = Annotated[int, Meta(ge=0, lt=MAX_SIZE)]


class _File(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    number: int


class _Leaf(msgspec.Struct, frozen=True, array_like=True, tag="leaf"):
    name: _Name
    kind: Literal["tensor", "number", "text", "bytes"]
    dtype: _Short
    shape: Annotated[tuple[_Size, ...], Meta(max_length=64)] | None
    digest: _Digest
    value: _Short | None


class _End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    format: Literal[
        "torch",
        "safetensors",
        "distributed",
        "npz",
        "npy",
        "json",
        "jsonl",
        "csv",
        "tsv",
    ]
    structure: _Digest


class _Whole(msgspec.Struct, frozen=True, array_like=True, tag="whole"):
    note: Annotated[str, Meta(max_length=1_000)]


class _Distance(msgspec.Struct, frozen=True, array_like=True, tag="distance"):
    name: _Name
    max_abs: float | None
    max_ulp: Count | None
    l2: float | None
    reference_l2: float | None


_Row: TypeAlias = _File | _Leaf | _End | _Whole | _Distance
_LINE: msgspec.json.Decoder[_Row] = msgspec.json.Decoder(_Row)


@dataclass
class _Answers:
    """The answers so far, by the number of an item; `distances` by the number of the second item
    and the name of a tensor."""

    items: Sequence[Collected]
    artifacts: dict[int, Artifact] = field(default_factory=dict)
    distances: dict[tuple[int, str], Distance] = field(default_factory=dict)
    number: int = -1  # the last item that was begun
    leaves: dict[str, Leaf] = field(default_factory=dict)  # of that item

    def take(self, row: _Row) -> None:
        """Read one line of the answer. Raises NoAnswer if it is not allowed at this place."""
        if isinstance(row, _Distance):
            ratio = None
            if row.l2 is not None and row.reference_l2:
                ratio = row.l2 / row.reference_l2
            far = Distance(row.max_abs, row.max_ulp, row.l2, ratio)
            self.distances[self.number, row.name] = far
            return
        if isinstance(row, _File):
            self.number = row.number
            self.leaves = {}
        number = self.number
        if number in self.artifacts or not 0 <= number < len(self.items):
            raise NoAnswer("a line about no file that was asked for")
        if isinstance(row, _Leaf):
            if row.name in self.leaves or len(self.leaves) >= MAX_LEAVES:
                raise NoAnswer("a value too many")
            fields = structs.asdict(row)
            name = fields.pop("name")
            self.leaves[name] = Leaf(**fields)
        elif isinstance(row, _Whole):
            self.artifacts[number] = _opaque(self.items[number], row.note)
        elif isinstance(row, _End):
            self.artifacts[number] = Artifact(
                digest=self.items[number].digest,
                leaves=self.leaves,
                **structs.asdict(row),
            )


def read(
    items: Sequence[Collected],
    python: Interpreter,
    seconds: float,
    *,
    pairs: bool = False,
) -> tuple[list[Artifact], dict[tuple[int, str], Distance]]:
    """Return the items' contents, read in one start of the training's interpreter. With `pairs`,
    return also the distances of the tensors of neighbouring items. Never raises because of a file's
    content or an interpreter that cannot be started: an item that was not read is returned as
    `opaque`, by its bytes, with a note that says why.
    """
    answers = _Answers(items)
    files = []
    for number, item in enumerate(items):
        path = os.fspath(item.path)
        if program.kind_of(path) in program.READERS:
            files.append([number, path])
        else:
            answers.artifacts[number] = _opaque(item)
    request = {"files": files, "pairs": pairs, "most": MAX_ANSWER}
    why = _LATE
    if files and seconds > 0:
        why = _ask(answers, request, python, seconds)
    return [
        answers.artifacts.get(at) or _opaque(it, why) for at, it in enumerate(items)
    ], answers.distances


def _ask(
    answers: _Answers,
    request: Mapping[str, object],
    python: Interpreter,
    seconds: float,
) -> str:
    """Start the interpreter once and read its answer. Return why the remaining items have no
    answer."""
    try:
        ended = ask(
            python,
            (str(ASK), "artifacts"),
            request,
            _LINE,
            answers.take,
            seconds=seconds,
        )
    except NoAnswer:
        return "what the training's Python says of it cannot be read"
    except OSError as error:
        why = error.strerror or error
        return f"the training's Python ({python.python}) does not read it: {why}"
    if ended.timed_out:
        return _LATE
    names = ["anything", *(item.name for item in answers.items)]
    why = f"(status {ended.exit_code}): {ended.last_line}".removesuffix(": ")
    return f"the training's Python ended before it had read {names[answers.number + 1]} {why}"


def _opaque(item: Collected, why: str = "") -> Artifact:
    """Return an item by its bytes: one leaf, or one for each file of a folder."""
    leaves = {
        name: Leaf(kind="bytes", dtype=None, shape=(size,), digest=digest)
        for name, digest, size in item.files
    }
    note = f"compared as a whole: {why}" if why else ""
    return Artifact(format="opaque", digest=item.digest, leaves=leaves, note=note)
