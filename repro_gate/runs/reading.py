"""What artifacts hold: asked of the training's interpreter, run as the training's user, where the
bytes of two runs differ.

Its answer is untrusted and read under limits. A file of which it says nothing is compared by its
bytes, and the report says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import structs

from repro_gate.compare.artifacts import (
    Artifact,
    Leaf,
    LeafDifference,
    compare_artifacts,
)
from repro_gate.compare.distances import distance_of_values
from repro_gate.compare.model import Distance, Divergence
from repro_gate.errors import Inconclusive
from repro_gate.files import make_folder, remove_tree
from repro_gate.probe import artifacts as program
from repro_gate.probe.contents import MAX_LEAVES, MAX_NAME, MAX_SIZE, MAX_VALUE
from repro_gate.runs.artifacts import FILE, Collected
from repro_gate.runs.interpreter import (
    ASK,
    Interpreter,
    NoAnswer,
    ask,
    prepared,
    training_interpreter,
)
from repro_gate.runs.workspaces import GateFolder
from repro_gate.sandbox.identity import chown_to_training
from repro_gate.spec.model import Spec

# for looking inside all artifacts of one series of runs; what is not read by then is compared by
# its bytes
MAX_SECONDS = 600.0
# bytes that the training's interpreter may say of the files of one start
MAX_ANSWER = 128 * 2**20
_LATE = (
    f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over"
)


class ArtifactReader:
    """Reads the artifacts of one series, each once, and remembers what they hold. `notes` say what
    could not be looked into."""

    def __init__(self, spec: Spec, folder: GateFolder) -> None:
        self.spec = spec
        self.folder = folder
        self.notes: list[str] = []
        self._known: dict[Path, Artifact] = {}
        self._seconds = MAX_SECONDS

    def contents(self, items: Sequence[Collected]) -> list[Artifact]:
        """Return what these artifacts hold. All that were not read before are read in one start of
        the training's interpreter, and removed."""
        waiting = [item for item in items if item.path not in self._known]
        if waiting:
            began = monotonic()
            for item, artifact in zip(waiting, self._read(waiting), strict=True):
                self._known[item.path] = artifact
                if artifact.note:
                    self.notes.append(f"artifact {item.name}: {artifact.note}")
            self._seconds -= monotonic() - began
        return [self._known[item.path] for item in items]

    def _read(self, items: Sequence[Collected]) -> list[Artifact]:
        sandbox = self.folder.sandbox
        folder = make_folder(self.folder.path / "reading")
        environment = prepared(self.spec, self.folder.outer, sandbox, folder)
        try:
            python = training_interpreter(self.spec, environment)
        except (
            Inconclusive
        ):  # the training needs none: its files are compared by their bytes
            python = "python"
        files = folder / "files"
        files.mkdir()
        moved = [
            replace(
                item, path=item.path.rename(files / f"{number:04d}{item.path.suffix}")
            )
            for number, item in enumerate(items)
        ]
        chown_to_training(sandbox, files)
        found, _ = read(
            moved, Interpreter(python, environment, sandbox, folder), self._seconds
        )
        remove_tree(folder)
        return found


@dataclass(frozen=True)
class Uncompared:
    """An artifact that was not compared, the glob that matched it, and why. `same`: it is a file in
    neither run, so nothing of it was lost; else a copy failed."""

    name: str
    glob: str
    why: str
    same: bool


def differences(
    a: Mapping[str, Collected],
    b: Mapping[str, Collected],
    reader: ArtifactReader,
    step: int,
) -> tuple[list[Divergence], int, list[Uncompared]]:
    """Compare two runs' artifacts by their names. Return what differs, as divergences at `step`;
    the number of values compared; and what could not be compared. A file with the same bytes in
    both is not looked into, and counts as one value."""
    found = list[Divergence]()
    uncompared = list[Uncompared]()
    others = list[Collected]()
    values = 0
    for name in sorted(a.keys() | b.keys()):
        first = a.get(name)
        second = b.get(name)
        detail = ""
        if first is None or second is None:
            detail = f"written by the {'first' if first else 'second'} run only"
        elif item := _uncompared(first, second):
            uncompared.append(item)
        elif first.kind != second.kind:
            detail = f"a {first.kind} in the first run, a {second.kind} in the second"
        elif first.digest != second.digest:
            others += first, second
        else:
            values += 1
        if detail:
            found.append(
                Divergence(step=step, kind="artifact", name=name, detail=detail)
            )
    contents = reader.contents(others)
    sides = zip(others[::2], contents[::2], contents[1::2], strict=True)
    for collected, left, right in sides:
        differing = compare_artifacts(left, right, collected.name)
        found += (as_divergence(item, step) for item in differing)
        values += len(left.leaves)
    found.sort(key=lambda item: item.name.partition(": ")[0])
    return found, values, uncompared


def _uncompared(a: Collected, b: Collected) -> Uncompared | None:
    """Return why two artifacts of one name cannot be compared; None where they can."""
    if problem := a.problem or b.problem:
        where = f"the {'first' if a.problem else 'second'} run"
        where = "both runs" if a.problem == b.problem else where
        return Uncompared(a.name, a.glob, f"in {where} {problem}", same=False)
    if FILE in (a.kind, b.kind):
        return None
    why = f"it is a {a.kind} in the first run, a {b.kind} in the second"
    why = f"in both runs it is a {a.kind}" if a.kind == b.kind else why
    return Uncompared(a.name, a.glob, why, same=True)


def as_divergence(item: LeafDifference, step: int) -> Divergence:
    """Return a differing value of an artifact as the report's divergence."""
    values = item.values
    far = None
    if values is not None and item.what == "value":
        far = distance_of_values(*values, item.dtype)
    return Divergence(
        step=step,
        kind="artifact",
        name=item.name,
        dtype=item.dtype,
        shape=item.shape,
        values=values,
        detail=item.detail,
        **vars(far or Distance()),
    )


# The interpreter's answer: each line is one of these.

_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
_Short = Annotated[str, msgspec.Meta(max_length=MAX_VALUE)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32,64}\Z")]
_Size = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SIZE)]


class _File(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    number: int


class _Leaf(msgspec.Struct, frozen=True, array_like=True, tag="leaf"):
    name: _Name
    kind: Literal["tensor", "number", "text", "bytes"]
    dtype: _Short
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=64)] | None
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
    note: Annotated[str, msgspec.Meta(max_length=1_000)]


class _Distance(msgspec.Struct, frozen=True, array_like=True, tag="distance"):
    name: _Name
    max_abs: float | None
    max_ulp: Annotated[int, msgspec.Meta(ge=0)] | None
    l2: float | None
    reference_l2: float | None


_Row: TypeAlias = _File | _Leaf | _End | _Whole | _Distance
_LINE: msgspec.json.Decoder[_Row] = msgspec.json.Decoder(_Row)


class _Answers:
    """What is known so far, by the number of an item; `distances` by the number of the second of
    two items and the name of a tensor."""

    def __init__(self, items: Sequence[Collected]) -> None:
        self.items = items
        self.found = {
            number: _opaque(item)
            for number, item in enumerate(items)
            if program.kind_of(str(item.path)) not in program.READERS
        }
        self.distances: dict[tuple[int, str], Distance] = {}
        self.number = -1  # the last item that was begun
        self.leaves: dict[str, Leaf] = {}  # of that item

    def take(self, row: _Row) -> None:
        """Take one line of the answer. Raises NoAnswer if it cannot stand there."""
        number = row.number if isinstance(row, _File) else self.number
        is_late = number in self.found and not isinstance(row, _Distance)
        if is_late or not 0 <= number < len(self.items):
            raise NoAnswer("a line about no file that was asked for")
        if isinstance(row, _File):
            self.number = number
            self.leaves = {}
        elif isinstance(row, _Distance):
            ratio = None
            if row.l2 is not None and row.reference_l2:
                ratio = row.l2 / row.reference_l2
            self.distances[number, row.name] = Distance(
                row.max_abs, row.max_ulp, row.l2, ratio
            )
        elif isinstance(row, _Leaf):
            if row.name in self.leaves or len(self.leaves) >= MAX_LEAVES:
                raise NoAnswer("a value too many")
            fields = structs.asdict(row)
            name = fields.pop("name")
            self.leaves[name] = Leaf(**fields)
        elif isinstance(row, _Whole):
            self.found[number] = _opaque(self.items[number], row.note)
        else:
            self.found[number] = Artifact(
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
    """Return the items' contents, in one start of the training's interpreter; with `pairs`, how far
    the tensors of two neighbours are apart.

    Never raises for what a file holds, or for an interpreter that cannot be started: what is not
    read comes back as `opaque`, by its bytes, with a note that says why.
    """
    known = _Answers(items)
    why = _LATE
    files = [
        [number, os.fspath(item.path)]
        for number, item in enumerate(items)
        if number not in known.found
    ]
    if files and seconds > 0:
        why = _ask(known, files, python, seconds, pairs=pairs)
    found = [known.found.get(at) or _opaque(item, why) for at, item in enumerate(items)]
    return found, known.distances


def _ask(
    known: _Answers,
    files: list[list[object]],
    python: Interpreter,
    seconds: float,
    *,
    pairs: bool,
) -> str:
    """Start the interpreter once for these files, and take what it answers. Return why there is no
    answer for the rest."""
    request = {"files": files, "pairs": pairs, "most": MAX_ANSWER}
    try:
        ended = ask(
            python,
            (str(ASK), "artifacts"),
            request,
            _LINE,
            known.take,
            seconds=seconds,
            most=MAX_ANSWER,
        )
    except NoAnswer:
        return "what the training's Python says of it cannot be read"
    except OSError as error:
        why = error.strerror or error
        return f"the training's Python ({python.python}) does not read it: {why}"
    if ended.timed_out:
        return _LATE
    name = known.items[known.number].name if known.number >= 0 else "anything"
    last = ended.last_line
    return (
        f"the training's Python ended before it had read {name} (status {ended.exit_code})"
        f"{': ' * bool(last)}{last}"
    )


def _opaque(item: Collected, why: str = "") -> Artifact:
    """Return an item by its bytes: one leaf, or one for each file of a folder."""
    leaves = {
        name: Leaf(kind="bytes", dtype=None, shape=(size,), digest=digest)
        for name, digest, size in item.files
    }
    return Artifact(
        format="opaque",
        digest=item.digest,
        leaves=leaves,
        note=f"compared as a whole: {why}" if why else "",
    )
