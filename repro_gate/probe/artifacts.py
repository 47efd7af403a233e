"""Reads checkpoints, arrays and tables that a training wrote, without executing what they hold:
`python probe artifacts REQUEST`.

The gate starts it in the training's interpreter, as the training's user, when no training runs; it
answers in JSON lines.
"""

from __future__ import annotations

import contextlib
import csv
import enum
import io
import json
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from typing import Any, Callable

from .contents import MAX_LEAVES, MAX_VALUE, Contents, Unreadable
from .process import printable

MAX_TEXT = 64 * 2**20  # bytes of a .json or .csv file
# brackets, braces and commas of a .json file, also those in strings
MAX_MARKS = 2_000_000
# bytes of address space beyond the imports, and for each byte that the largest file takes on disk
FREE_MEMORY = 4 * 2**30
MAX_MEMORY = 8
METADATA = ".metadata"  # the file that makes a folder a distributed checkpoint
# what a distributed checkpoint's index may name: records of two modules, and these
_CHECKPOINT = "torch.distributed.checkpoint"
_RECORDS = (f"{_CHECKPOINT}.metadata", f"{_CHECKPOINT}.filesystem")
_NAMES = re.compile(
    r"torch\.Size|torch\.serialization\._get_layout|collections\.OrderedDict"
    r"|pathlib\.(_local\.)?(PosixPath|WindowsPath|PurePosixPath)"
)
_REFUSED = re.compile(
    r"(?:GLOBAL|[Uu]nsupported (?:global|class)|instantiate)[: ]+(?:GLOBAL )?([\w.]+)"
)


def main(request: dict[str, Any]) -> None:
    """Read the files of a request, {"files": [[number, path], …], "answer": path, "pairs": bool,
    "most": bytes}, in order.

    The answer has, for each file, ["file", number], then ["leaf", name, kind, dtype, shape, digest,
    value] for each leaf and ["end", format, structure], or ["whole", note]. With `pairs`, an
    odd-numbered file behind its neighbour also has ["distance", name, max_abs, max_ulp, l2, l2 of
    the first] for each tensor in which they differ.
    """
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    files = request["files"]
    sizes = []
    taken = [0]
    for _, path in files:
        states = [os.stat(name) for name in _files(path)]
        sizes.append(sum(state.st_size for state in states))
        # without holes: one that is nearly all hole would take hours to read
        taken.append(sum(min(it.st_size, it.st_blocks * 512) for it in states))
        _, library, _ = READERS[kind_of(path)]
        if library:
            with contextlib.suppress(Unreadable):  # each file that needs it says so
                _required(library)
    _limit_memory(FREE_MEMORY + MAX_MEMORY * max(taken))
    left = request["most"]
    first = Contents(0)
    with open(request["answer"], "w", encoding="ascii") as answer:
        for (number, path), size in zip(files, sizes):
            answer.write(_line("file", number))
            answer.flush()  # before it is read: the gate sees which file ended this process
            contents = Contents(size)
            is_second = request["pairs"] and number % 2 == 1
            neighbour = first if is_second else None
            text = _text_of(contents, path, neighbour, left)
            answer.write(text)
            answer.flush()
            left -= len(text)
            first = contents


def kind_of(path: str) -> str:
    """Return the key of `READERS` for a file or a folder."""
    if os.path.isdir(path):
        return METADATA
    return os.path.splitext(path)[1].lower()


def _text_of(contents: Contents, path: str, first: Contents | None, most: int) -> str:
    """Read a file into `contents`, and return its lines of the answer, of `most` bytes."""
    name, _, reader = READERS[kind_of(path)]
    try:
        reader(contents, path)
        lines = [_line("leaf", *row) for row in contents.rows.values()]
        lines.append(_line("end", name, contents.structure()))
        lines += [] if first is None else _distances(first, contents)
        text = "".join(lines)
        if len(text) > most:
            raise Unreadable("it holds more than can be told")
        return text
    # Whatever a hostile file makes a reader raise: its bytes can be compared all the same.
    except Exception as error:
        why = str(error).strip().split("\n")[0]
        why = printable(why[:MAX_VALUE])
        if not isinstance(error, Unreadable):
            why = f"it could not be read ({type(error).__name__}: {why})"
        return _line("whole", why)


def _line(*row: Any) -> str:
    return json.dumps(row) + "\n"


def _distances(first: Contents, second: Contents) -> Iterator[str]:
    for leaf, tensor in second.tensors.items():
        row = second.rows[leaf]
        other = first.rows.get(leaf, row)
        is_same_kind = other[2:4] == row[2:4]
        if is_same_kind and other[4] != row[4]:
            # A type that has no distance: the digests say that it differs.
            with contextlib.suppress(Exception):
                from .distance import measure

                as_tensor = _required("torch").as_tensor
                figures = measure(as_tensor(first.tensors[leaf]), as_tensor(tensor))
                yield _line("distance", leaf, *figures[:4])


def _torch_file(out: Contents, path: str) -> None:
    zipped = _bytes(path, 4) == b"PK\x03\x04"
    out.walk("", _load(path, zipped))


def _load(source: Any, zipped: bool) -> Any:
    """`torch.load` as far as it executes nothing: nothing but tensors, plain containers and what
    numpy stores its numbers in."""
    torch = _required("torch")
    # numpy, or a torch before 2.5, is missing: neither is needed for tensors
    with contextlib.suppress(Exception):
        import numpy as np

        parts = (getattr(np, "_core", None) or np.core).multiarray
        kinds = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdFDSUMm"}
        names = [np.ndarray, np.dtype, parts._reconstruct, parts.scalar, *kinds]
        torch.serialization.add_safe_globals(names)
    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        refused = _REFUSED.search(str(error))
        name = f" (it names {refused.group(1)})" if refused else ""
        raise Unreadable(
            "torch does not load it without executing it" + name
        ) from error


def _safetensors(out: Contents, path: str) -> None:
    _required("torch")
    with _required("safetensors").safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        for key, value in sorted(metadata.items()):
            out.text("__metadata__." + key, value)
        for name in file.keys():  # noqa: SIM118  it is not a mapping
            out.tensor(name, file.get_tensor(name))


def _npy(out: Contents, path: str) -> None:
    numpy = _required("numpy")
    array = numpy.load(path, allow_pickle=False, mmap_mode="r")
    out.array("array", array)


def _npz(out: Contents, path: str) -> None:
    """Add each array by itself: numpy writes the time of day into the archive. What is no array of
    numbers is compared as bytes."""
    numpy = _required("numpy")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if len({info.filename for info in infos}) != len(infos):
            raise Unreadable("two of its entries have the same name")
        for info in infos:
            out.spend(info.file_size)
            data = archive.read(info)
            try:
                array = numpy.load(io.BytesIO(data), allow_pickle=False)
                out.array(info.filename[: -len(".npy")], array)
            except (ValueError, Unreadable):
                out.data(info.filename, data)


class _Metadata(pickle.Unpickler):
    """The index of a distributed checkpoint, which torch writes as a pickle: no name is looked up
    but those of its plain records."""

    def find_class(self, module: str, name: str) -> Any:
        if _NAMES.fullmatch(f"{module}.{name}"):
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module in ("torch", *_RECORDS) and "." not in name:
            item = super().find_class(module, name)
            kind = type(item).__name__
            is_record = hasattr(item, "__dataclass_fields__") or kind.startswith("Enum")
            if kind == "dtype" if module == "torch" else is_record:
                return item
        raise Unreadable(f"its {METADATA} names {module}.{name}")


def _member(kind: Any, name: str) -> Any:
    """Return the member of an enumeration: Python 3.11.0 to 3.11.3 pickles one as a call of
    `getattr`."""
    if isinstance(kind, enum.EnumMeta):
        return kind[name]
    raise Unreadable(f"its {METADATA} names builtins.getattr")


def _distributed(out: Contents, path: str) -> None:
    """Add a folder of torch.distributed.checkpoint: one leaf for each tensor, or for each shard of
    it; other files as bytes."""
    _required("torch")
    with open(os.path.join(path, METADATA), "rb") as file:
        metadata = _Metadata(file).load()
    files = {os.path.relpath(file, path) for file in _files(path)}
    whole = files - {METADATA}
    stored = metadata.storage_data
    for index in sorted(stored, key=_place):
        info = stored[index]
        name = info.relative_path
        if name not in files:
            raise Unreadable(f"its {METADATA} names a file that is not there")
        if getattr(info, "transform_descriptors", None):
            raise Unreadable("its tensors are compressed")
        whole.discard(name)
        data = _bytes(os.path.join(path, name), info.length, info.offset)
        described = metadata.state_dict_metadata[index.fqn]
        chunks = getattr(described, "chunks", ())
        shard = f" at {list(index.offset)}" if len(chunks) > 1 else ""
        value = _load(io.BytesIO(data), zipped=False)
        out.walk(index.fqn + shard, value)
    for name in sorted(whole):
        data = _bytes(os.path.join(path, name))
        out.data(name, data)


def _place(index: Any) -> tuple[str, tuple[int, ...]]:
    return index.fqn, tuple(index.offset or ())


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a .json file. Raises Unreadable for a key that stands twice: one of its
    values would not be compared."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise Unreadable("a key of an object stands twice in it")
    return mapping


def _json(out: Contents, path: str) -> None:
    """Add a .json file to the last bit: `1` is not `1.0`, `-0.0` is not `0.0`; layout and the order
    of keys do not count. Of several JSON texts, one a line, each is added by its line."""
    text = _text(path)
    if sum(map(text.count, "[{,")) > MAX_MARKS:
        raise Unreadable(f"it holds more than {MAX_MARKS:,} values")
    lines = {"": text}
    if not path.lower().endswith(".json"):
        lines = {}
        for number, line in enumerate(text.split("\n"), 1):
            lines[f"line {number}"] = line
    for name, line in lines.items():
        if line.strip() or not name:
            value = json.loads(line, object_pairs_hook=_mapping)
            out.walk(name, value, depth=bool(name))


def _table(out: Contents, path: str) -> None:
    """Add a table cell by cell as text. The first row is a header if none of its cells is empty or
    a number; else columns go by number, from 1."""
    header: dict[int, str] = {}
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    text = io.StringIO(_text(path), newline="")
    table = csv.reader(text, delimiter=delimiter, strict=True)
    for number, row in enumerate(table, 1):
        if number > MAX_LEAVES:
            raise Unreadable(f"it has more than {MAX_LEAVES:,} rows")
        if number == 1 and all(map(_is_title, row)):
            header = dict(enumerate(row[:10_000], 1))
        out.container(f"row {number}", str(len(row)))
        for column, cell in enumerate(row, 1):
            out.text(f"row {number}, column {header.get(column, column)}", cell, "cell")


def _is_title(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return bool(cell.strip())
    return False


def _text(path: str) -> str:
    data = _bytes(path, MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise Unreadable(f"it is larger than {MAX_TEXT // 2**20} MiB")
    return data.decode("utf-8-sig")


def _bytes(path: str, most: int = -1, offset: int = 0) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(most)


def _required(name: str) -> Any:
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        raise Unreadable(f"the training's Python has no {name}") from error
    except Exception as error:
        raise Unreadable(f"{name} cannot be imported") from error


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)


def _limit_memory(room: int) -> None:
    """Allow at most `room` bytes of address space more than there are now, so that a file that asks
    for more is refused by itself."""
    with contextlib.suppress(Exception):  # not Linux: the gate watches the time
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


_TORCH = ("torch", "torch", _torch_file)
_LINES = ("jsonl", "", _json)
# suffix -> format, what it is read with, reader
READERS: dict[str, tuple[str, str, Callable[[Contents, str], None]]] = {
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".ckpt": _TORCH,
    ".bin": _TORCH,
    ".safetensors": ("safetensors", "torch", _safetensors),
    ".npz": ("npz", "numpy", _npz),
    ".npy": ("npy", "numpy", _npy),
    ".json": ("json", "", _json),
    ".jsonl": _LINES,
    ".ndjson": _LINES,
    ".csv": ("csv", "", _table),
    ".tsv": ("tsv", "", _table),
    METADATA: ("distributed", "torch", _distributed),
}
