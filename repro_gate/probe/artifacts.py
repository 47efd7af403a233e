"""Reads checkpoints, arrays and tables that a training wrote, without executing what they hold: `python artifacts.py REQUEST`.

The gate starts it in the training's interpreter, as the training's user, when no training runs; it answers in JSON lines.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import pickle
import re
import struct
import sys
import zipfile
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

MAX_LEAVES = 250_000  # of one file
MAX_DEPTH = 100  # of nested containers
MAX_NAME = 4096  # characters of one leaf's name
MAX_CHARACTERS = 64 * 2**20  # of all names and values of one file
MAX_SIZE = 2**53  # of one dimension: above it a JSON number is no longer exact
MAX_VALUE = 200  # characters of a value that is shown; its digest covers all of it
MAX_TEXT = 64 * 2**20  # bytes of a .json or .csv file
MAX_MARKS = 2_000_000  # brackets, braces and commas of a .json file, also those in strings
FREE_BYTES, MAX_EXPANSION = 64 * 2**20, 16  # bytes digested whatever a file's size, and for each of its bytes: views share storages
FREE_MEMORY, MAX_MEMORY = 4 * 2**30, 8  # bytes of address space beyond the imports, and for each byte of the largest file
METADATA = ".metadata"  # the file that makes a folder a distributed checkpoint
_REFUSED = re.compile(r"(?:GLOBAL|[Uu]nsupported (?:global|class)|instantiate)[: ]+(?:GLOBAL )?([\w.]+)")


class Unreadable(Exception):
    """A file that is malformed, above a limit, or not to be read without executing it. The text completes `compared as a whole: …`."""


class Contents:
    """What one file holds: rows (name, kind, dtype, shape, digest, value) in its order, tensors by name, and its containers."""

    def __init__(self, size: int) -> None:
        self.rows: Dict[str, List[Any]] = {}
        self.tensors: Dict[str, Any] = {}
        self.containers: List[str] = []
        self.bytes_left = FREE_BYTES + MAX_EXPANSION * size
        self.characters = 0
        self._known: Dict[Any, str] = {}  # digests of tensors that share storage, shape and strides
        self._counts: Dict[str, int] = {}

    def add(self, name: str, kind: str, dtype: str, shape: Any, digest: str, value: Optional[str] = None) -> str:
        """Take one leaf; a name that comes again gets ` (2)` behind it. Raises Unreadable above the limits."""
        name = _printable(name) or "(root)"
        if name in self.rows:
            count = self._counts.get(name, 1) + 1
            while "%s (%d)" % (name, count) in self.rows:
                count += 1
            self._counts[name] = count
            name = "%s (%d)" % (name, count)
        if value is not None:
            value = _printable(value[: MAX_VALUE + 1])
            value = value if len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + "…"
        self.characters += len(name) + len(value or "")
        if len(self.rows) >= MAX_LEAVES:
            raise Unreadable("it holds more than {:,} leaves".format(MAX_LEAVES))
        if len(name) > MAX_NAME or self.characters > MAX_CHARACTERS:
            raise Unreadable("its names are too long")
        if shape is not None and max(shape, default=0) >= MAX_SIZE:
            raise Unreadable("a dimension of it is above 2**53")
        self.rows[name] = [name, kind, _printable(dtype[:MAX_VALUE]), shape, digest, value]
        return name

    def plain(self, name: str, kind: str, dtype: str, data: bytes, value: Optional[str]) -> None:
        """A value that is no tensor; `data` is what the digest sees."""
        self.add(name, kind, dtype, None, hashlib.sha256(dtype.encode() + b"\0" + data).hexdigest(), value)

    def text(self, name: str, value: str, dtype: str = "str") -> None:
        self.plain(name, "text", dtype, value.encode("utf-8", "surrogatepass"), value)

    def spend(self, count: int) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise Unreadable("its tensors are far larger than the file that holds them")

    def tensor(self, torch: Any, name: str, tensor: Any) -> None:
        """A tensor by the digest that a trace has: dtype, shape and elements in logical order."""
        from _repro_gate.probe import digest

        tensor = tensor.detach()
        self.containers.append("%s\0tensor %s" % (name, type(tensor).__name__))
        strided = tensor.layout is torch.strided and digest.in_memory(torch, tensor)
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()) if strided else None
        found = self._known.get(key) if key is not None else None
        if found is None:
            self.spend(tensor.numel() * tensor.element_size() if strided else 0)
            found = self._known[key] = digest.digest_all(torch, [tensor]).hex()
            if digest.UNREAD:
                raise Unreadable("it holds a tensor of a type that cannot be read (%s)" % digest.UNREAD.popitem()[0])
        _, dtype, shape = digest.describe(name, tensor)
        value = None
        if strided and tensor.numel() == 1 and not tensor.is_quantized:
            item = tensor.item()
            value = repr(item) if item == item else None  # the digests of two NaNs say more
        self.tensors[self.add(name, "tensor", dtype, list(shape), found, value)] = tensor

    def array(self, name: str, array: Any) -> None:
        """A numpy array of numbers, texts or records. Raises Unreadable for one of objects, which is a pickle."""
        if array.dtype.hasobject:
            raise Unreadable("it holds an array of Python objects, which is a pickle")
        self.spend(array.nbytes)
        plain = array.dtype.names is None and array.dtype.isnative and array.dtype.kind in "biufc"
        dtype = str(array.dtype) if plain else str(array.dtype.descr if array.dtype.names else array.dtype.str)
        state = hashlib.sha256(("%s\0%s\0" % (dtype, array.shape)).encode())
        state.update(array.tobytes())  # in C order
        value = repr(array.reshape(-1)[0].item()) if plain and array.size == 1 and not (array != array).any() else None
        self.tensors[self.add(name, "tensor", dtype, list(array.shape), state.hexdigest(), value)] = array

    def structure(self) -> str:
        """A digest over container types and the types of keys, blind to the order of keys."""
        state = hashlib.sha256()
        for line in sorted(self.containers):
            state.update(line.encode("utf-8", "surrogatepass") + b"\n")
        return state.hexdigest()


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _join(name: str, key: object, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise Unreadable("it is nested deeper than %d levels" % MAX_DEPTH)
    joined = "%s.%s" % (name, key) if name else str(key)
    if len(joined) > MAX_NAME:
        raise Unreadable("a name is longer than {:,} characters".format(MAX_NAME))
    return joined


# One place gives the tensors of a checkpoint their names: `optimizer.state.0.exp_avg`.


def _walk(out: Contents, name: str, value: Any, depth: int = 0, above: Tuple[int, ...] = ()) -> None:
    """Add what a checkpoint holds under `name`. Raises Unreadable for an object of a type that is not known here."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        out.containers.append("%s\0%s %s" % (name, type(value).__name__, value.requires_grad))
        out.tensor(torch, name, value)
    elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        out.containers.append("%s\0%s" % (name, type(value).__name__))
        out.array(name, numpy.asarray(value))
    elif isinstance(value, (dict, list, tuple, set, frozenset)) or type(value).__name__ == "deque":
        if id(value) in above:
            out.text(name, "holds itself", "reference")
        else:
            _container(out, name, value, depth, (*above, id(value)))
    else:
        _scalar(out, name, value, torch)


def _container(out: Contents, name: str, value: Any, depth: int, above: Tuple[int, ...]) -> None:
    kind = type(value).__name__
    if isinstance(value, dict):
        pairs = [(_key(key), key, item) for key, item in value.items()]
        kind += " " + " ".join(sorted("%s:%s" % (type(key).__name__, label) for label, key, _ in pairs))
    else:
        items = sorted(value, key=lambda item: (type(item).__name__, repr(item))) if isinstance(value, (set, frozenset)) else value
        pairs = [(str(place), place, item) for place, item in enumerate(items)]
        kind += " %d" % len(pairs)
    out.containers.append("%s\0%s" % (name, kind))
    for label, _, item in pairs:
        _walk(out, _join(name, label, depth), item, depth + 1, above)
    if not pairs:
        out.text(name, {"dict": "{}", "tuple": "()"}.get(type(value).__name__, "[]"), type(value).__name__)


def _key(key: Any) -> str:
    """A key as text: `0`, `weight`, `(1, 2)`."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple) and len(key) <= 16:
        return "(" + ", ".join(map(_key, key)) + ")"
    if isinstance(key, (int, float, bytes)) or key is None:
        return repr(key) if not isinstance(key, int) or key.bit_length() < 4096 else hex(key)
    return str(key) if type(key).__module__ == "torch" else "<%s>" % type(key).__name__


def _scalar(out: Contents, name: str, value: Any, torch: Any = None) -> None:
    if value is None:
        out.text(name, "None", "None")
    elif isinstance(value, bool):
        out.plain(name, "number", "bool", str(value).encode(), str(value))
    elif isinstance(value, int):
        small = value.bit_length() <= 4096  # decimal conversion of a longer one is quadratic
        out.plain(name, "number", "int", hex(value).encode(), str(value) if small else "an integer of %d bits" % value.bit_length())
    elif isinstance(value, float):
        bits = struct.pack("<d", value)
        usual = not math.isnan(value) or bits == struct.pack("<d", math.nan)
        out.plain(name, "number", "float", bits, repr(value) if usual else "nan (0x%s)" % bits[::-1].hex())
    elif isinstance(value, complex):
        out.plain(name, "number", "complex", struct.pack("<dd", value.real, value.imag), repr(value))
    elif isinstance(value, str):
        out.text(name, value)
    elif isinstance(value, (bytes, bytearray)):
        digest = hashlib.sha256(value).hexdigest()
        out.add(name, "bytes", type(value).__name__, [len(value)], digest, value.hex() if len(value) <= 32 else None)
    elif torch is not None and isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)):
        out.text(name, str(value), type(value).__name__)
    else:
        raise Unreadable("it holds an object of type %s.%s" % (type(value).__module__, type(value).__qualname__))


# What each kind of file is read by.


def _torch_file(out: Contents, path: str) -> None:
    _walk(out, "", _load(path, zipped=_starts(path, b"PK\x03\x04")))


def _load(source: Any, zipped: bool) -> Any:
    """`torch.load` as far as it executes nothing: nothing but tensors, plain containers and what numpy stores its numbers in."""
    import inspect

    torch = _required("torch")
    options: Dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    known = inspect.signature(torch.load).parameters
    if "weights_only" not in known:
        raise Unreadable("this torch (%s) cannot load it without executing it" % torch.__version__)
    if zipped and "mmap" in known and isinstance(source, str):
        options["mmap"] = True
    try:
        with _numpy_allowed(torch):
            return torch.load(source, **options)
    except pickle.UnpicklingError as error:
        named = _REFUSED.search(str(error))
        raise Unreadable("torch does not load it without executing it" + (" (it names %s)" % named.group(1) if named else "")) from error


def _numpy_allowed(torch: Any) -> Any:
    safe = getattr(torch.serialization, "safe_globals", None)  # since torch 2.5
    try:
        import numpy as np

        core = getattr(np, "_core", None) or np.core
        kinds = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdFDSUMm"}
        return safe([np.ndarray, np.dtype, core.multiarray._reconstruct, core.multiarray.scalar, *kinds])  # type: ignore[misc]
    except Exception:  # neither is needed for tensors
        return contextlib.nullcontext()


def _safetensors(out: Contents, path: str) -> None:
    try:
        from safetensors import safe_open
    except ImportError:
        raise Unreadable("the training's Python has no safetensors") from None
    torch = _required("torch")
    with safe_open(path, framework="pt") as file:
        for key, value in sorted((file.metadata() or {}).items()):
            out.text("__metadata__." + key, value)
        for name in file.keys():  # noqa: SIM118  it is not a mapping
            out.tensor(torch, name, file.get_tensor(name))


def _npy(out: Contents, path: str) -> None:
    out.array("array", _required("numpy").load(path, allow_pickle=False, mmap_mode="r"))


def _npz(out: Contents, path: str) -> None:
    """Each array by itself: numpy writes the time of day into the archive. What is no array of numbers is compared as bytes."""
    numpy = _required("numpy")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if len({info.filename for info in infos}) != len(infos):
            raise Unreadable("two of its entries have the same name")
        for info in infos:
            out.spend(info.file_size)
            with archive.open(info) as entry:
                data = entry.read()
            try:
                out.array(info.filename[: -len(".npy")], numpy.load(io.BytesIO(data), allow_pickle=False))
            except (ValueError, Unreadable):
                out.add(info.filename, "bytes", "bytes", [len(data)], hashlib.sha256(data).hexdigest())


class _Metadata(pickle.Unpickler):
    """The index of a distributed checkpoint, which torch writes as a pickle: no name is looked up but those of its plain records."""

    def find_class(self, module: str, name: str) -> Any:
        records = module in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
        plain = (module, name) in (("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"))
        path = module.split(".")[0] == "pathlib" and name in ("PosixPath", "WindowsPath", "PurePosixPath")
        if (records and "." not in name) or plain or path or module == "torch":
            found = super().find_class(module, name)
            kind = type(found).__name__ == "EnumMeta" or type(found).__name__ == "EnumType" or hasattr(found, "__dataclass_fields__")
            if plain or path or (records and kind) or (module == "torch" and type(found).__name__ == "dtype"):
                return found
        raise Unreadable("its %s names %s.%s" % (METADATA, module, name))


def _distributed(out: Contents, path: str) -> None:
    """A folder of torch.distributed.checkpoint: one leaf for each tensor, or for each shard of it; other files as bytes."""
    _required("torch")
    import torch.distributed.checkpoint.filesystem

    with open(os.path.join(path, METADATA), "rb") as file:
        metadata = _Metadata(file).load()
    files = {os.path.relpath(os.path.join(folder, name), path) for folder, _, names in os.walk(path) for name in names} - {METADATA}
    whole = files - {info.relative_path for info in metadata.storage_data.values()}
    for index, info in sorted(metadata.storage_data.items(), key=lambda item: (item[0].fqn, tuple(item[0].offset or ()))):
        if info.relative_path not in files:
            raise Unreadable("its %s names a file that is not there" % METADATA)
        with open(os.path.join(path, info.relative_path), "rb") as file:
            file.seek(info.offset)
            data = file.read(info.length)
        sharded = len(getattr(metadata.state_dict_metadata[index.fqn], "chunks", ())) > 1
        name = "%s at %s" % (index.fqn, list(index.offset)) if sharded else index.fqn
        if getattr(info, "transform_descriptors", None):
            raise Unreadable("its tensors are compressed")
        _walk(out, name, _load(io.BytesIO(data), zipped=False))
    for name in sorted(whole):
        with open(os.path.join(path, name), "rb") as file:
            data = file.read()
        out.add(name, "bytes", "bytes", [len(data)], hashlib.sha256(data).hexdigest())


def _json(out: Contents, path: str) -> None:
    """To the last bit: `1` is not `1.0`, `-0.0` is not `0.0`; layout and the order of keys do not count."""
    _walk(out, "", json.loads(_json_text(path)))


def _json_lines(out: Contents, path: str) -> None:
    for number, line in enumerate(_json_text(path).split("\n"), 1):
        if line.strip():
            _walk(out, "line %d" % number, json.loads(line), 1)


def _json_text(path: str) -> str:
    text = _text(path)
    if sum(map(text.count, "[{,")) > MAX_MARKS:
        raise Unreadable("it holds more than {:,} values".format(MAX_MARKS))
    return text


def _table(out: Contents, path: str) -> None:
    """Cell by cell as text. The first row is a header if none of its cells is empty or a number; else columns go by number, from 1."""
    names: List[str] = []
    rows = csv.reader(io.StringIO(_text(path), newline=""), delimiter="\t" if path.lower().endswith(".tsv") else ",", strict=True)
    for number, row in enumerate(rows, 1):
        if number > MAX_LEAVES:
            raise Unreadable("it has more than {:,} rows".format(MAX_LEAVES))
        if number == 1 and all(cell.strip() and not _numeric(cell) for cell in row):
            names = [cell if cell not in row[:place] else "%s (column %d)" % (cell, place + 1) for place, cell in enumerate(row[:10_000])]
        out.containers.append("row %d\0%d" % (number, len(row)))
        for place, cell in enumerate(row):
            out.text("row %d, column %s" % (number, names[place] if place < len(names) else place + 1), cell, "cell")


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


def _starts(path: str, magic: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _required(name: str) -> Any:
    try:
        return __import__(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError)
        raise Unreadable("the training's Python has no %s" % name if missing else "%s cannot be imported" % name) from error


READERS: Dict[str, Tuple[str, str, Callable[[Contents, str], None]]] = {  # suffix -> format, what it is read with, reader
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), ("torch", "torch", _torch_file)),
    ".safetensors": ("safetensors", "torch", _safetensors),
    ".npz": ("npz", "numpy", _npz),
    ".npy": ("npy", "numpy", _npy),
    ".json": ("json", "", _json),
    ".jsonl": ("jsonl", "", _json_lines),
    ".ndjson": ("jsonl", "", _json_lines),
    ".csv": ("csv", "", _table),
    ".tsv": ("tsv", "", _table),
    METADATA: ("distributed", "torch", _distributed),
}


def kind_of(path: str) -> str:
    """The key of `READERS` for a file or a folder."""
    return METADATA if os.path.isdir(path) else os.path.splitext(path)[1].lower()


def main(request: str) -> None:
    """Read the files of a request, {"files": [[number, path], …], "answer": path, "pairs": bool, "most": bytes}, in order.

    The answer has, for each file, ["file", number], then ["leaf", name, kind, dtype, shape, digest, value] for each leaf and
    ["end", format, structure], or ["whole", note]. With `pairs`, an odd-numbered file behind its neighbour also has ["distance", name,
    max_abs, max_ulp, l2, l2 of the first] for each tensor in which they differ.
    """
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    with open(request, encoding="utf-8") as file:
        wanted = json.load(file)
    sizes = {number: sum(os.path.getsize(item) for item in _files(path)) for number, path in wanted["files"]}
    for library in {READERS[kind_of(path)][1] for _, path in wanted["files"]} - {""}:
        with contextlib.suppress(Unreadable):  # each file that needs it says so
            _required(library)
    _limit_memory(FREE_MEMORY + MAX_MEMORY * max(sizes.values(), default=0))
    left, previous = wanted["most"], (-1, Contents(0))
    with open(wanted["answer"], "w", encoding="ascii") as answer:
        for number, path in wanted["files"]:
            answer.write(_lines([["file", number]]))
            answer.flush()  # before it is read: the gate sees which file ended this process
            contents = Contents(sizes[number])
            try:
                pair = wanted["pairs"] and number % 2 and previous[0] == number - 1
                said = _lines(_read(contents, path, previous[1] if pair else None))
                if len(said) > left:
                    raise Unreadable("it holds more than can be told")
            except Unreadable as error:
                said = _lines([["whole", _printable(str(error))]])
            except Exception as error:  # whatever a hostile file makes a reader raise: its bytes can be compared all the same
                why = _printable(str(error).strip().split("\n")[0][:MAX_VALUE])
                said = _lines([["whole", "it could not be read (%s: %s)" % (type(error).__name__, why)]])
            answer.write(said)
            answer.flush()
            left -= len(said)
            previous = (number, contents)


def _read(contents: Contents, path: str, other: Optional[Contents]) -> Iterator[List[Any]]:
    name, _, reader = READERS[kind_of(path)]
    reader(contents, path)
    for row in contents.rows.values():
        yield ["leaf", *row]
    yield ["end", name, contents.structure()]
    if other is not None:
        for row in contents.rows.values():
            before = other.rows.get(row[0])
            if before is not None and row[0] in contents.tensors and before[2:4] == row[2:4] and before[4] != row[4]:
                yield from _distance(row[0], other.tensors.get(row[0]), contents.tensors[row[0]])


def _distance(name: str, a: Any, b: Any) -> Iterator[List[Any]]:
    try:
        torch = _required("torch")
        from _repro_gate.probe.distance import measure

        a, b = (item if isinstance(item, torch.Tensor) else torch.from_numpy(item.copy()) for item in (a, b))
        yield ["distance", name, *measure(torch, a, b)]
    except Exception:
        return  # a type that has no distance: the digests say that it differs


def _lines(rows: Iterable[List[Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _limit_memory(room: int) -> None:
    """At most `room` bytes of address space more than there are now, so that a file that asks for more is refused by itself."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
    except Exception:
        pass  # not Linux: the gate watches the time


if __name__ == "__main__":
    import types

    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["_repro_gate"] = package
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(os.path.abspath(__file__))]
    main(sys.argv[1])
