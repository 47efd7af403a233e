"""Reads checkpoints, arrays and tables that a training wrote, without executing what they hold:
`python probe artifacts REQUEST`.

The gate starts it in the training's interpreter, as the training's user, when no training runs; it
answers in JSON lines.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pickle
import re
import sys
import zipfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .contents import MAX_LEAVES, MAX_VALUE, Contents, Unreadable
from .digest import EXTENSION
from .process import printable

MAX_TEXT = 64 * 2**20  # bytes of a .json or .csv file
MAX_MARKS = 2_000_000  # brackets, braces and commas of a .json file, also those in strings
# bytes of address space beyond the imports, and for each byte of the largest file
FREE_MEMORY, MAX_MEMORY = (
    4 * 2**30,
    8,
)
METADATA = ".metadata"  # the file that makes a folder a distributed checkpoint
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
        wanted = json.load(file)
    EXTENSION[:] = [wanted["extension"]]
    sizes = {number: sum(map(os.path.getsize, _files(path))) for number, path in wanted["files"]}
    for library in {READERS[kind_of(path)][1] for _, path in wanted["files"]} - {""}:
        with contextlib.suppress(Unreadable):  # each file that needs it says so
            _required(library)
    _limit_memory(FREE_MEMORY + MAX_MEMORY * max(sizes.values(), default=0))
    left, previous = wanted["most"], (-1, Contents(0))
    with open(wanted["answer"], "w", encoding="ascii") as answer:
        for number, path in wanted["files"]:
            answer.write(json.dumps(["file", number]) + "\n")
            answer.flush()  # before it is read: the gate sees which file ended this process
            contents = Contents(sizes[number])
            pair = wanted["pairs"] and number % 2 and previous[0] == number - 1
            try:
                text = "".join(
                    json.dumps(row) + "\n"
                    for row in _read(contents, path, previous[1] if pair else None)
                )
                if len(text) > left:
                    raise Unreadable("it holds more than can be told")
            # whatever a hostile file makes a reader raise: its bytes can be compared all the same
            except Exception as error:
                why = printable(str(error).strip().split("\n")[0][:MAX_VALUE])
                if not isinstance(error, Unreadable):
                    why = "it could not be read (%s: %s)" % (type(error).__name__, why)
                text = json.dumps(["whole", why]) + "\n"
            answer.write(text)
            answer.flush()
            left -= len(text)
            previous = (number, contents)


def kind_of(path: str) -> str:
    """The key of `READERS` for a file or a folder."""
    return METADATA if os.path.isdir(path) else os.path.splitext(path)[1].lower()


def _read(contents: Contents, path: str, other: Optional[Contents]) -> Iterator[List[Any]]:
    name, _, reader = READERS[kind_of(path)]
    reader(contents, path)
    yield from (["leaf", *row] for row in contents.rows.values())
    yield ["end", name, contents.structure()]
    if other is None:
        return
    for row in contents.rows.values():
        before = other.rows.get(row[0], row)
        if row[0] in contents.tensors and before[2:4] == row[2:4] and before[4] != row[4]:
            # a type that has no distance: the digests say that it differs
            with contextlib.suppress(Exception):
                from .distance import measure

                torch = _required("torch")
                a, b = (torch.as_tensor(item.tensors[row[0]]) for item in (other, contents))
                yield ["distance", row[0], *measure(torch, a, b)]


def _torch_file(out: Contents, path: str) -> None:
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    out.walk("", _load(path, zipped))


def _load(source: Any, zipped: bool) -> Any:
    """`torch.load` as far as it executes nothing: nothing but tensors, plain containers and what
    numpy stores its numbers in."""
    torch = _required("torch")
    try:
        with _numpy_allowed(torch):
            return torch.load(source, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        named = _REFUSED.search(str(error))
        names = " (it names %s)" % named.group(1) if named else ""
        raise Unreadable("torch does not load it without executing it" + names) from error


def _numpy_allowed(torch: Any) -> Any:
    try:
        import numpy as np

        core = getattr(np, "_core", None) or np.core
        kinds = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdFDSUMm"}
        return torch.serialization.safe_globals(
            [np.ndarray, np.dtype, core.multiarray._reconstruct, core.multiarray.scalar, *kinds]
        )
    except Exception:  # numpy, or a torch before 2.5, is missing: neither is needed for tensors
        return contextlib.nullcontext()


def _safetensors(out: Contents, path: str) -> None:
    torch = _required("torch")
    with _required("safetensors").safe_open(path, framework="pt") as file:
        for key, value in sorted((file.metadata() or {}).items()):
            out.text("__metadata__." + key, value)
        for name in file.keys():  # noqa: SIM118  it is not a mapping
            out.tensor(torch, name, file.get_tensor(name))


def _npy(out: Contents, path: str) -> None:
    out.array("array", _required("numpy").load(path, allow_pickle=False, mmap_mode="r"))


def _npz(out: Contents, path: str) -> None:
    """Each array by itself: numpy writes the time of day into the archive. What is no array of
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
                out.array(
                    info.filename[: -len(".npy")], numpy.load(io.BytesIO(data), allow_pickle=False)
                )
            except (ValueError, Unreadable):
                out.data(info.filename, data)


class _Metadata(pickle.Unpickler):
    """The index of a distributed checkpoint, which torch writes as a pickle: no name is looked up
    but those of its plain records."""

    def find_class(self, module: str, name: str) -> Any:
        records = (
            module
            in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
            and "." not in name
        )
        plain = (module, name) in (
            ("torch", "Size"),
            ("torch.serialization", "_get_layout"),
            ("collections", "OrderedDict"),
        )
        plain = plain or (
            module.split(".")[0] == "pathlib"
            and name in ("PosixPath", "WindowsPath", "PurePosixPath")
        )
        if records or plain or module == "torch":
            found = super().find_class(module, name)
            kind = type(found).__name__
            record = records and (
                kind in ("EnumMeta", "EnumType") or hasattr(found, "__dataclass_fields__")
            )
            if plain or record or (module == "torch" and kind == "dtype"):
                return found
        raise Unreadable("its %s names %s.%s" % (METADATA, module, name))


def _distributed(out: Contents, path: str) -> None:
    """A folder of torch.distributed.checkpoint: one leaf for each tensor, or for each shard of it;
    other files as bytes."""
    _required("torch")
    import torch.distributed.checkpoint.filesystem

    with open(os.path.join(path, METADATA), "rb") as file:
        metadata = _Metadata(file).load()
    files = {os.path.relpath(file, path) for file in _files(path)} - {METADATA}
    whole = files - {info.relative_path for info in metadata.storage_data.values()}
    for index, info in sorted(
        metadata.storage_data.items(), key=lambda item: (item[0].fqn, tuple(item[0].offset or ()))
    ):
        if info.relative_path not in files:
            raise Unreadable("its %s names a file that is not there" % METADATA)
        if getattr(info, "transform_descriptors", None):
            raise Unreadable("its tensors are compressed")
        with open(os.path.join(path, info.relative_path), "rb") as file:
            file.seek(info.offset)
            data = file.read(info.length)
        sharded = len(getattr(metadata.state_dict_metadata[index.fqn], "chunks", ())) > 1
        name = "%s at %s" % (index.fqn, list(index.offset)) if sharded else index.fqn
        out.walk(name, _load(io.BytesIO(data), zipped=False))
    for name in sorted(whole):
        with open(os.path.join(path, name), "rb") as file:
            out.data(name, file.read())


def _mapping(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Return an object of a .json file. Raises Unreadable for a key that stands twice: one of its
    values would not be compared."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("a key of an object stands twice in it")
    return found


def _json(out: Contents, path: str) -> None:
    """To the last bit: `1` is not `1.0`, `-0.0` is not `0.0`; layout and the order of keys do not
    count."""
    out.walk("", json.loads(_json_text(path), object_pairs_hook=_mapping))


def _json_lines(out: Contents, path: str) -> None:
    for number, line in enumerate(_json_text(path).split("\n"), 1):
        if line.strip():
            out.walk("line %d" % number, json.loads(line, object_pairs_hook=_mapping), 1)


def _json_text(path: str) -> str:
    text = _text(path)
    if sum(map(text.count, "[{,")) > MAX_MARKS:
        raise Unreadable("it holds more than {:,} values".format(MAX_MARKS))
    return text


def _table(out: Contents, path: str) -> None:
    """Cell by cell as text. The first row is a header if none of its cells is empty or a number;
    else columns go by number, from 1."""
    names: List[str] = []
    rows = csv.reader(
        io.StringIO(_text(path), newline=""),
        delimiter="\t" if path.lower().endswith(".tsv") else ",",
        strict=True,
    )
    for number, row in enumerate(rows, 1):
        if number > MAX_LEAVES:
            raise Unreadable("it has more than {:,} rows".format(MAX_LEAVES))
        if number == 1 and all(cell.strip() and not _numeric(cell) for cell in row):
            names = row[:10_000]
        out.container("row %d" % number, str(len(row)))
        for column, cell in enumerate(row):
            out.text(
                "row %d, column %s"
                % (number, names[column] if column < len(names) else column + 1),
                cell,
                "cell",
            )


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
        raise Unreadable("it is larger than %d MiB" % (MAX_TEXT // 2**20))
    return data.decode("utf-8-sig")


def _required(name: str) -> Any:
    try:
        return __import__(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError)
        raise Unreadable(
            "the training's Python has no %s" % name if missing else "%s cannot be imported" % name
        ) from error


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _limit_memory(room: int) -> None:
    """At most `room` bytes of address space more than there are now, so that a file that asks for
    more is refused by itself."""
    with contextlib.suppress(Exception):  # not Linux: the gate watches the time
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


READERS: Dict[
    str, Tuple[str, str, Callable[[Contents, str], None]]
] = {  # suffix -> format, what it is read with, reader
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), ("torch", "torch", _torch_file)),
    ".safetensors": ("safetensors", "torch", _safetensors),
    ".npz": ("npz", "numpy", _npz),
    ".npy": ("npy", "numpy", _npy),
    ".json": ("json", "", _json),
    **dict.fromkeys((".jsonl", ".ndjson"), ("jsonl", "", _json_lines)),
    ".csv": ("csv", "", _table),
    ".tsv": ("tsv", "", _table),
    METADATA: ("distributed", "torch", _distributed),
}
