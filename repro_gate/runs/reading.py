"""What artifacts hold: asked of the training's interpreter, run as the training's user, where the
bytes of two runs differ.

Its answer is untrusted and read under limits. A file of which it says nothing is compared by its
bytes, and the report says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal

import msgspec

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
from repro_gate.runs.environment import EXTENSION
from repro_gate.runs.interpreter import prepared, training_interpreter
from repro_gate.runs.process import supervise
from repro_gate.runs.workspaces import GateFolder
from repro_gate.sandbox.identity import Sandbox, chown_to_training, open_written
from repro_gate.spec.model import Spec

# for looking inside all artifacts of one series of runs; what is not read by then is compared by
# its bytes
MAX_SECONDS = 600.0
MAX_ANSWER = (
    128 * 2**20
)  # bytes that the training's interpreter may say of the files of one start
_LATE = (
    f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over"
)


@dataclass(frozen=True)
class Interpreter:
    """The training's Python, the environment and the user that it is started with, and a folder of
    its own that it may enter."""

    python: str
    environment: Mapping[str, str]
    sandbox: Sandbox
    folder: Path


class ArtifactReader:
    """Reads the artifacts of one series, each once, and remembers what they hold. `notes` say what
    could not be looked into."""

    def __init__(self, spec: Spec, folder: GateFolder) -> None:
        self.spec, self.folder = spec, folder
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
        sandbox, folder = self.folder.sandbox, make_folder(self.folder.path / "reading")
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


@dataclass(frozen=True, kw_only=True)
class ArtifactComparison:
    """Two runs' artifacts compared: what differs, the number of values compared, and what could not
    be compared."""

    divergences: tuple[Divergence, ...]
    values: int
    uncompared: tuple[Uncompared, ...]


def differences(
    a: Mapping[str, Collected],
    b: Mapping[str, Collected],
    reader: ArtifactReader,
    step: int,
) -> ArtifactComparison:
    """Compare two runs' artifacts by their names; what differs becomes divergences at `step`. A
    file with the same bytes in both is not looked into, and counts as one value."""

    def differs(name: str, detail: str) -> Divergence:
        return Divergence(step=step, kind="artifact", name=name, detail=detail)

    both = sorted(a.keys() & b.keys())
    found = [
        differs(name, f"written by the {'first' if name in a else 'second'} run only")
        for name in sorted(a.keys() ^ b.keys())
    ]
    uncompared = [
        item for name in both if (item := _uncompared(a[name], b[name])) is not None
    ]
    readable = [name for name in both if a[name].readable and b[name].readable]
    skipped = {item.name for item in uncompared}.union(readable)
    found += (
        differs(
            name, f"a {a[name].kind} in the first run, a {b[name].kind} in the second"
        )
        for name in both
        if name not in skipped
    )
    unlike = [name for name in readable if a[name].digest != b[name].digest]
    contents = reader.contents([side[name] for name in unlike for side in (a, b)])
    count = len(readable) - len(unlike)
    for name, left, right in zip(unlike, contents[::2], contents[1::2], strict=True):
        found += (
            as_divergence(item, step) for item in compare_artifacts(left, right, name)
        )
        count += len(left.leaves)
    ordered = tuple(sorted(found, key=lambda item: item.name.partition(": ")[0]))
    return ArtifactComparison(
        divergences=ordered, values=count, uncompared=tuple(uncompared)
    )


def _uncompared(a: Collected, b: Collected) -> Uncompared | None:
    """Return why two artifacts of one name cannot be compared; None where they can."""
    if a.problem or b.problem:
        where = (
            "both runs"
            if a.problem == b.problem
            else f"the {'first' if a.problem else 'second'} run"
        )
        return Uncompared(
            a.name, a.glob, f"in {where} {a.problem or b.problem}", same=False
        )
    if FILE in (a.kind, b.kind):
        return None
    what = (
        f"in both runs it is a {a.kind}"
        if a.kind == b.kind
        else f"it is a {a.kind} in the first run, a {b.kind} in the second"
    )
    return Uncompared(a.name, a.glob, what, same=True)


def as_divergence(item: LeafDifference, step: int) -> Divergence:
    """Return a differing value of an artifact as the report's divergence."""
    values, far = item.values, None
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


_LINE: msgspec.json.Decoder[_File | _Leaf | _End | _Whole | _Distance] = (
    msgspec.json.Decoder(_File | _Leaf | _End | _Whole | _Distance)
)


@dataclass
class _Answers:
    """What is known so far, by the number of an item; `distances` by the number of the second of
    two items and the name of a tensor."""

    found: dict[int, Artifact]
    distances: dict[tuple[int, str], Distance]
    asked: int = -1  # the last item that was begun


def read(
    items: Sequence[Collected],
    python: Interpreter,
    seconds: float,
    *,
    pairs: bool = False,
) -> tuple[list[Artifact], dict[tuple[int, str], Distance]]:
    """Return the items' contents, in one start of the training's interpreter; with `pairs`, how far
    the tensors of two neighbours are apart.

    `python.folder` has the folders `empty` and `tmp`, both the training's own. Never raises for
    what a file holds, or for an interpreter that cannot be started: what is not read comes back as
    `opaque`, by its bytes, with a note that says why.
    """
    known = _Answers({}, {})
    for number, item in enumerate(items):
        if program.kind_of(str(item.path)) not in program.READERS:
            known.found[number] = _opaque(item)
    waiting = [number for number in range(len(items)) if number not in known.found]
    why = _start(items, waiting, python, seconds, known, pairs) if waiting else ""
    found = {
        **{number: _opaque(items[number], why) for number in waiting},
        **known.found,
    }
    return [found[number] for number in range(len(items))], known.distances


def _start(
    items: Sequence[Collected],
    waiting: list[int],
    python: Interpreter,
    seconds: float,
    known: _Answers,
    pairs: bool,
) -> str:
    """Start the interpreter once for the waiting items, and take what it answered. Why there is no
    answer for the rest."""
    if seconds <= 0:
        return _LATE
    request, answer = (
        python.folder / "request.json",
        python.folder / "tmp" / "answer.jsonl",
    )
    files = [[number, os.fspath(items[number].path)] for number in waiting]
    asked = {
        "files": files,
        "answer": os.fspath(answer),
        "pairs": pairs,
        "most": MAX_ANSWER,
        "extension": EXTENSION,
    }
    request.write_text(json.dumps(asked), encoding="ascii")
    request.chmod(0o644)
    answer.unlink(missing_ok=True)
    try:
        ended = supervise(
            [
                python.python,
                os.path.dirname(program.__file__),
                "artifacts",
                os.fspath(request),
            ],
            cwd=python.folder / "empty",
            env=python.environment,
            timeout=seconds,
            sandbox=python.sandbox,
        )
        with os.fdopen(open_written(answer, python.sandbox), "rb") as file:
            said = file.read(MAX_ANSWER + 1)
    except OSError as error:
        return (
            f"the training's Python ({python.python}) does not "
            f"read it: {error.strerror or error}"
        )
    broken = _take(said, items, waiting, known)
    if ended.timed_out:
        return _LATE
    if broken:
        return "what the training's Python says of it cannot be read"
    last = next(
        (line.strip()[:200] for line in reversed(ended.tail) if line.strip()), ""
    )
    name = items[known.asked].name if known.asked >= 0 else "anything"
    return (
        f"the training's Python ended before it had read {name} (status {ended.exit_code})"
        + (f": {last}" if last else "")
    )


def _take(
    said: bytes, items: Sequence[Collected], waiting: list[int], known: _Answers
) -> bool:
    """Take an answer line by line, up to the first line that is no answer; whether there was
    one."""
    leaves: dict[str, Leaf] = {}
    for line in said.splitlines(keepends=True):
        try:
            row = _LINE.decode(line)
        except (ValueError, RecursionError):
            return line.endswith(b"\n")  # else it was cut off, with the program
        if isinstance(row, _File):
            if row.number not in waiting or row.number in known.found:
                return True
            known.asked, leaves = row.number, {}
        elif known.asked < 0:
            return True
        elif isinstance(row, _Distance):
            ratio = (
                row.l2 / row.reference_l2
                if row.l2 is not None and row.reference_l2
                else None
            )
            known.distances[known.asked, row.name] = Distance(
                row.max_abs, row.max_ulp, row.l2, ratio
            )
        elif known.asked in known.found or (
            isinstance(row, _Leaf) and (row.name in leaves or len(leaves) >= MAX_LEAVES)
        ):
            return True
        elif isinstance(row, _Leaf):
            leaves[row.name] = Leaf(
                kind=row.kind,
                dtype=row.dtype,
                shape=row.shape,
                digest=row.digest,
                value=row.value,
            )
        elif isinstance(row, _Whole):
            known.found[known.asked] = _opaque(items[known.asked], row.note)
        else:
            digest = items[known.asked].digest
            known.found[known.asked] = Artifact(
                format=row.format, digest=digest, leaves=leaves, structure=row.structure
            )
    return False


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
