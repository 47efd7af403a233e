"""A run's declared artifacts: found by globs, copied out of the workspace, and read in the training's interpreter where bytes differ.

What lies in the workspace, and what the interpreter answers, is untrusted: both are read under limits. What is not answered is compared
by its bytes, and said.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec

from repro_gate.compare.artifacts import WHOLE_FILE, Artifact, Leaf
from repro_gate.compare.model import Distance
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import NotRegular, copy_file
from repro_gate.probe import artifacts as program
from repro_gate.probe.contents import MAX_LEAVES, MAX_NAME, MAX_SIZE, MAX_VALUE
from repro_gate.runs.process import supervise
from repro_gate.sandbox.as_user import open_written
from repro_gate.sandbox.identity import Isolation

MAX_FILES = 1_000
MAX_VISITED = 200_000  # folder entries looked at for one run
MAX_SECONDS = 600.0  # for looking inside all artifacts of a gate run; what is not read by then is compared by its bytes
MAX_ANSWER = 128 * 2**20  # bytes that the training's interpreter may say of the files of one start
_CHUNK = 4 * 2**20
_WILD = re.compile(r"[*?\[]")
_INDEX = re.compile(r"(.*)\.(safetensors|bin)\.index\.json")  # of a sharded model of transformers
Sight = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Collected:
    """One file, or one folder of torch.distributed.checkpoint: its name below the root, its copy, and the SHA-256 of its bytes.

    What could not be taken (a link that leads out of the root, a pipe, a full disk) has a `note` that says why and no copy at `path`: a
    comparison with it is a difference, never a silent pass.
    """

    name: str
    path: Path
    digest: str = ""
    note: str = ""
    files: tuple[tuple[str, str, int], ...] = ()  # name, digest and size of each file of a folder, or of the one file


@dataclass(frozen=True)
class Interpreter:
    """The training's Python, the environment and the user that it is started with, and a folder of its own that it may enter."""

    python: str
    environment: Mapping[str, str]
    isolation: Isolation
    place: Path


# Collecting: what the globs match.


class _Search:
    """One search: the root with its links resolved, and how many folder entries may still be looked at."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.left = MAX_VISITED

    def inside(self, name: str) -> bool:
        """Whether `name` lies below the root when all links are followed."""
        real = os.path.realpath(os.path.join(self.root, name))
        return real == self.root or real.startswith(self.root + os.sep)

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted, as far as the search may still look."""
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(os.path.join(self.root, folder)) as found:
            for entry in found:
                self.left -= 1
                if self.left < 0:
                    break
                names.append(entry.name)
        return sorted(names)

    def distributed(self, folder: str) -> bool:
        """Whether a folder is a checkpoint of torch.distributed.checkpoint."""
        if not folder or not os.path.isfile(os.path.join(self.root, folder, program.METADATA)) or not self.inside(folder):
            return False
        return any(name.endswith(".distcp") for name in self.names(folder))


def collect(
    root: Path, globs: Sequence[str], destination: Path, sight: Sight = nullcontext
) -> tuple[tuple[Collected, ...], tuple[str, ...]]:
    """Copy the files below `root` that the globs match to `destination`; give them in the order of their names, and the globs without a
    match.

    `*`, `?` and `[…]` match within one name, not a leading dot unless the glob has one; `**` matches any number of folders and does not
    enter linked ones. A link inside `root` counts as what it points to. The index of a sharded model brings its shards, a file of a
    distributed checkpoint the whole folder. Copies share no inode with a file that something left behind may still write to; they are
    numbered and keep only their suffix. Whatever is looked at below `root` is looked at inside `sight()`: with the rights of whoever wrote
    it, where that is another user. Raises UsageError for a glob that is absolute or has `..` in it, Inconclusive for more than MAX_FILES
    files or a search that is too wide.
    """
    with sight():
        search = _Search(root)
        matches = {glob: set(_expand(search, "", _parts(glob))) for glob in globs}
        names = _whole(search, set().union(*matches.values()))
    if len(names) > MAX_FILES or search.left < 0:
        many = f"match {len(names):,} files, more than {MAX_FILES:,}"
        if search.left < 0:
            many = f"search more than {MAX_VISITED:,} folder entries"
        raise Inconclusive(f"capture.artifacts {many}", reason_id="artifact/too-many", remedy="name the files to compare more narrowly")
    destination.mkdir(parents=True, exist_ok=True)
    copies = [_copied(search, name, destination, place, sight) for place, name in enumerate(names)]
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(_with_digest, copies)), tuple(glob for glob in globs if not matches[glob])


def in_place(path: Path) -> tuple[Collected, ...]:
    """One file where it lies, the index of a sharded model with its shards, or the folder of a distributed checkpoint."""
    search = _Search(path.resolve().parent)
    found = [Collected(os.path.basename(name), Path(search.root, name)) for name in _whole(search, {path.resolve().name})]
    plain = [item if item.path.is_file() or item.path.is_dir() else replace(item, note="it is not a regular file") for item in found]
    return tuple(map(_with_digest, plain))


def _whole(search: _Search, found: set[str]) -> list[str]:
    """The names, with the shards that an index stands for, and a folder in place of the files of a distributed checkpoint."""
    for name in list(found):
        if index := _INDEX.fullmatch(os.path.basename(name)):
            folder = os.path.dirname(name)
            shards = (other for other in search.names(folder) if other.startswith(f"{index[1]}-") and other.endswith(f".{index[2]}"))
            found |= {os.path.join(folder, other) for other in shards}
    folders = {folder for folder in {os.path.dirname(name) for name in found} | found if search.distributed(folder)}
    return sorted({name for name in found if os.path.dirname(name) not in folders} | folders, key=os.fsencode)


def _parts(glob: str) -> tuple[str, ...]:
    path = PurePosixPath(glob)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in glob:
        raise UsageError(
            f"capture.artifacts: {glob!r} is not a path below the working directory",
            reason_id="spec/invalid",
            remedy="write it relative to train.working-directory, without `..`: `out/*.pt`",
        )
    return path.parts


def _expand(search: _Search, base: str, parts: tuple[str, ...]) -> Iterator[str]:
    """Names of the files and distributed checkpoints below `base` that the rest of a glob matches."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for folder in _folders(search, base):
            yield from _expand(search, folder, rest or ("*",))
        return
    names = [part]
    if _WILD.search(part):
        pattern = re.compile(translate(part))
        names = [name for name in search.names(base) if pattern.match(name) and (part.startswith(".") or not name.startswith("."))]
    for name in names:
        path = f"{base}/{name}" if base else name
        full = os.path.join(search.root, path)
        if rest and os.path.isdir(full) and search.inside(path):
            yield from _expand(search, path, rest)
        elif not rest and os.path.lexists(full) and (not os.path.isdir(full) or search.distributed(path)):
            yield path


def _folders(search: _Search, base: str) -> Iterator[str]:
    """`base` and all folders below it, without hidden and linked ones."""
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        yield folder
        for name in search.names(folder):
            path = f"{folder}/{name}" if folder else name
            full = os.path.join(search.root, path)
            if not name.startswith(".") and os.path.isdir(full) and not os.path.islink(full):
                waiting.append(path)


def _copied(search: _Search, name: str, destination: Path, place: int, sight: Sight) -> Collected:
    suffix = os.path.splitext(name)[1]
    target = destination / f"{place:04d}{suffix if re.fullmatch(r'[.][A-Za-z0-9]{1,16}', suffix) else ''}"
    shown = _printable(name)
    with sight():
        inside, source = search.inside(name), Path(os.path.realpath(os.path.join(search.root, name)))
        members = [item for item in search.names(name) if os.path.isfile(source / item)] if source.is_dir() else None
    if not inside:
        return Collected(shown, target, note="a link leads out of the working directory")
    try:
        if members is None:
            copy_file(source, target, sight)
        else:
            if len(members) > MAX_FILES:
                raise OSError(f"it holds more than {MAX_FILES:,} files")
            target.mkdir()
            for item in members:
                copy_file(source / item, target / item, sight)
    except NotRegular:
        return Collected(shown, target, note="it is not a regular file")
    except OSError as error:
        return Collected(shown, target, note=f"it could not be kept: {error.strerror or error}")
    return Collected(shown, target)


def _with_digest(item: Collected) -> Collected:
    if item.note:
        return item
    if not item.path.is_dir():
        digest = _digest(item.path)
        return replace(item, digest=digest, files=((WHOLE_FILE, digest, item.path.stat().st_size),))
    members = sorted(path for path in item.path.iterdir() if path.is_file())
    files = tuple((_printable(path.name), _digest(path), path.stat().st_size) for path in members)
    return replace(item, digest=hashlib.sha256(repr(files).encode()).hexdigest(), files=files)


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _digest(path: Path) -> str:
    state = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


# Reading: what the training's interpreter says that they hold. Each line of its answer is one of these.

_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
_Short = Annotated[str, msgspec.Meta(max_length=MAX_VALUE)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32,64}$")]
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
    format: Literal["torch", "safetensors", "distributed", "npz", "npy", "json", "jsonl", "csv", "tsv"]
    structure: _Digest


class _Whole(msgspec.Struct, frozen=True, array_like=True, tag="whole"):
    note: Annotated[str, msgspec.Meta(max_length=1_000)]


class _Distance(msgspec.Struct, frozen=True, array_like=True, tag="distance"):
    name: _Name
    max_abs: float | None
    max_ulp: Annotated[int, msgspec.Meta(ge=0)] | None
    l2: float | None
    reference_l2: float | None


_LINE: msgspec.json.Decoder[_File | _Leaf | _End | _Whole | _Distance] = msgspec.json.Decoder(_File | _Leaf | _End | _Whole | _Distance)


@dataclass
class _Answers:
    """What is known so far, by the place of an item; `distances` by the place of the second of two items and the name of a tensor."""

    found: dict[int, Artifact]
    distances: dict[tuple[int, str], Distance]
    asked: int = -1  # the last item that was begun


def read(
    items: Sequence[Collected], python: Interpreter, seconds: float, *, pairs: bool = False
) -> tuple[list[Artifact], dict[tuple[int, str], Distance]]:
    """The items' contents, in one start of the training's interpreter; with `pairs`, how far the tensors of two neighbours are apart.

    `python.place` has the folders `empty` and `tmp`, both the training's own. Never raises for what a file holds, or for an interpreter
    that cannot be started: what is not read comes back as `opaque`, by its bytes, with a note that says why.
    """
    known = _Answers({}, {})
    for place, item in enumerate(items):
        if item.note:
            known.found[place] = Artifact(format="refused", note=item.note)
        elif program.kind_of(str(item.path)) not in program.READERS:
            known.found[place] = _opaque(item)
    waiting = [place for place in range(len(items)) if place not in known.found]
    why = _start(items, waiting, python, seconds, known, pairs) if waiting else ""
    found = {**{place: _opaque(items[place], why) for place in waiting}, **known.found}
    return [found[place] for place in range(len(items))], known.distances


def _start(items: Sequence[Collected], waiting: list[int], python: Interpreter, seconds: float, known: _Answers, pairs: bool) -> str:
    """Start the interpreter once for the waiting items, and take what it answered. Why there is no answer for the rest."""
    request, answer = python.place / "request.json", python.place / "tmp" / "answer.jsonl"
    files = [[place, os.fspath(items[place].path)] for place in waiting]
    request.write_text(json.dumps({"files": files, "answer": os.fspath(answer), "pairs": pairs, "most": MAX_ANSWER}), encoding="ascii")
    request.chmod(0o644)
    answer.unlink(missing_ok=True)
    if seconds <= 0:
        return f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over"
    try:
        ended = supervise(
            [python.python, os.path.dirname(program.__file__), "artifacts", os.fspath(request)],
            cwd=python.place / "empty",
            env=python.environment,
            timeout=seconds,
            tick=lambda _: None,
            isolation=python.isolation,
        )
        with os.fdopen(open_written(answer, python.isolation), "rb") as file:
            said = file.read(MAX_ANSWER + 1)
    except OSError as error:
        return f"the training's Python ({python.python}) does not read it: {error.strerror or error}"
    broken = _take(said, items, waiting, known)
    if ended.timed_out:
        return f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over"
    if broken:
        return "what the training's Python says of it cannot be read"
    last = next((line.strip()[:200] for line in reversed(ended.tail) if line.strip()), "")
    name = items[known.asked].name if known.asked >= 0 else "anything"
    return f"the training's Python ended before it had read {name} (status {ended.exit_code})" + (f": {last}" if last else "")


def _take(said: bytes, items: Sequence[Collected], waiting: list[int], known: _Answers) -> bool:
    """Take an answer line by line, up to the first line that is no answer; whether there was one."""
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
            ratio = row.l2 / row.reference_l2 if row.l2 is not None and row.reference_l2 else None
            known.distances[known.asked, row.name] = Distance(row.max_abs, row.max_ulp, row.l2, ratio)
        elif known.asked in known.found or (isinstance(row, _Leaf) and (row.name in leaves or len(leaves) >= MAX_LEAVES)):
            return True
        elif isinstance(row, _Leaf):
            leaves[row.name] = Leaf(kind=row.kind, dtype=row.dtype, shape=row.shape, digest=row.digest, value=row.value)
        elif isinstance(row, _Whole):
            known.found[known.asked] = _opaque(items[known.asked], row.note)
        else:
            digest = items[known.asked].digest
            known.found[known.asked] = Artifact(format=row.format, digest=digest, leaves=leaves, structure=row.structure)
    return False


def _opaque(item: Collected, why: str = "") -> Artifact:
    """An item by its bytes: one leaf, or one for each file of a folder."""
    leaves = {name: Leaf(kind="bytes", dtype=None, shape=(size,), digest=digest) for name, digest, size in item.files}
    return Artifact(format="opaque", digest=item.digest, leaves=leaves, note=f"compared as a whole: {why}" if why else "")
