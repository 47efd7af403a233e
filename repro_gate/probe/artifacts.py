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
from .digest import EXTENSION
from .process import printable

MAX_TEXT = 64 * 2**20  # bytes of a .json or .csv file
# brackets, braces and commas of a .json file, also those in strings
MAX_MARKS = 2_000_000
# bytes of address space beyond the imports, and for each byte of the largest file
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


def main(request: str) -> None:
    """Read the files of a request, {"files": [[number, path], …], "answer": path, "pairs": bool,
    "most": bytes, "extension": path or null}, in order.

    The answer has, for each file, ["file", number], then ["leaf", name, kind, dtype, shape, digest,
    value] for each leaf and ["end", format, structure], or ["whole", note]. With `pairs`, an
    odd-numbered file behind its neighbour also has ["distance", name, max_abs, max_ulp, l2, l2 of
    the first] for each tensor in which they differ.
    """
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    with open(request, encoding="utf-8") as file:
        job = json.load(file)
    EXTENSION[:] = [job["extension"]]
    files = job["files"]
    sizes = {number: sum(map(os.path.getsize, _files(path))) for number, path in files}
    for library in {READERS[kind_of(path)][1] for _, path in files} - {""}:
        with contextlib.suppress(Unreadable):  # each file that needs it says so
            _required(library)
    _limit_memory(FREE_MEMORY + MAX_MEMORY * max(sizes.values(), default=0))
    left = job["most"]
    first = Contents(0)
    with open(job["answer"], "w", encoding="ascii") as answer:
        for number, path in files:
            answer.write(_line(["file", number]))
            answer.flush()  # before it is read: the gate sees which file ended this process
            contents = Contents(sizes[number])
            second = job["pairs"] and number % 2 == 1
            text = _text_of(contents, path, first if second else None, left)
            answer.write(text)
            answer.flush()
            left -= len(text)
            first = contents


def kind_of(path: str) -> str:
    """Return the key of `READERS` for a file or a folder."""
    return METADATA if os.path.isdir(path) else os.path.splitext(path)[1].lower()


def _text_of(contents: Contents, path: str, first: Contents | None, most: int) -> str:
    """Read a file into `contents`, and return its lines of the answer, of `most` bytes."""
    try:
        text = "".join(map(_line, _rows(contents, path, first)))
        if len(text) > most:
            raise Unreadable("it holds more than can be told")
        return text
    # whatever a hostile file makes a reader raise: its bytes can be compared all the same
    except Exception as error:
        why = printable(str(error).strip().split("\n")[0][:MAX_VALUE])
        if not isinstance(error, Unreadable):
            why = f"it could not be read ({type(error).__name__}: {why})"
        return _line(["whole", why])


def _line(row: list[Any]) -> str:
    return json.dumps(row) + "\n"


def _rows(contents: Contents, path: str, first: Contents | None) -> Iterator[list[Any]]:
    name, _, reader = READERS[kind_of(path)]
    reader(contents, path)
    for row in contents.rows.values():
        yield ["leaf", *row]
    yield ["end", name, contents.structure()]
    if first is None:
        return
    for leaf, tensor in contents.tensors.items():
        row = contents.rows[leaf]
        before = first.rows.get(leaf)
        if before is not None and before[2:4] == row[2:4] and before[4] != row[4]:
            # a type that has no distance: the digests say that it differs
            with contextlib.suppress(Exception):
                from .distance import measure

                sides = map(_required("torch").as_tensor, (first.tensors[leaf], tensor))
                yield ["distance", leaf, *measure(*sides)[:4]]


def _torch_file(out: Contents, path: str) -> None:
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
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
        for key, value in sorted((file.metadata() or {}).items()):
            out.text("__metadata__." + key, value)
        for name in file.keys():  # noqa: SIM118  it is not a mapping
            out.tensor(name, file.get_tensor(name))


def _npy(out: Contents, path: str) -> None:
    out.array("array", _required("numpy").load(path, allow_pickle=False, mmap_mode="r"))


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
    files = {os.path.relpath(file, path) for file in _files(path)} - {METADATA}
    whole = files - {info.relative_path for info in metadata.storage_data.values()}
    for index, info in sorted(metadata.storage_data.items(), key=_place):
        if info.relative_path not in files:
            raise Unreadable(f"its {METADATA} names a file that is not there")
        if getattr(info, "transform_descriptors", None):
            raise Unreadable("its tensors are compressed")
        with open(os.path.join(path, info.relative_path), "rb") as file:
            file.seek(info.offset)
            data = file.read(info.length)
        chunks = getattr(metadata.state_dict_metadata[index.fqn], "chunks", ())
        name = f"{index.fqn} at {list(index.offset)}" if len(chunks) > 1 else index.fqn
        out.walk(name, _load(io.BytesIO(data), zipped=False))
    for name in sorted(whole):
        with open(os.path.join(path, name), "rb") as file:
            out.data(name, file.read())


def _place(item: tuple[Any, Any]) -> tuple[str, tuple[int, ...]]:
    index, _ = item
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
    of keys do not count."""
    out.walk("", json.loads(_json_text(path), object_pairs_hook=_mapping))


def _json_lines(out: Contents, path: str) -> None:
    for number, line in enumerate(_json_text(path).split("\n"), 1):
        if line.strip():
            out.walk(f"line {number}", json.loads(line, object_pairs_hook=_mapping), 1)


def _json_text(path: str) -> str:
    text = _text(path)
    if sum(map(text.count, "[{,")) > MAX_MARKS:
        raise Unreadable(f"it holds more than {MAX_MARKS:,} values")
    return text


def _table(out: Contents, path: str) -> None:
    """Add a table cell by cell as text. The first row is a header if none of its cells is empty or
    a number; else columns go by number, from 1."""
    header: dict[int, str] = {}
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    text = io.StringIO(_text(path), newline="")
    for number, row in enumerate(csv.reader(text, delimiter=delimiter, strict=True), 1):
        if number > MAX_LEAVES:
            raise Unreadable(f"it has more than {MAX_LEAVES:,} rows")
        if number == 1 and all(cell.strip() and not _numeric(cell) for cell in row):
            header = dict(enumerate(row[:10_000], 1))
        out.container(f"row {number}", str(len(row)))
        for column, cell in enumerate(row, 1):
            out.text(f"row {number}, column {header.get(column, column)}", cell, "cell")


def _numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _text(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise Unreadable(f"it is larger than {MAX_TEXT // 2**20} MiB")
    return data.decode("utf-8-sig")


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
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


_TORCH = ("torch", "torch", _torch_file)
_LINES = ("jsonl", "", _json_lines)
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
