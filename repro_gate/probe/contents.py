"""What one artifact holds, as rows that can be compared: every tensor, array, number and text by
its name, with a digest.

One place gives the tensors of a checkpoint their names (`optimizer.state.0.exp_avg`) and bounds
what a hostile file may hold.
"""

from __future__ import annotations

import collections
import hashlib
import struct
import sys
from typing import Any

from . import digest
from .names import decimal, label_of
from .process import printable

MAX_LEAVES = 250_000  # of one file
MAX_DEPTH = 100  # of nested containers
MAX_NAME = 4096  # characters of one leaf's name
MAX_CHARACTERS = 64 * 2**20  # of all names and values of one file
MAX_SIZE = 2**53  # of one dimension: above it a JSON number is no longer exact
MAX_VALUE = 200  # characters of a value that is shown; its digest covers all of it
# bytes digested whatever a file's size, and for each of its bytes: views share storages
FREE_BYTES = 64 * 2**20
MAX_EXPANSION = 16
_TEXT = "utf-8", "surrogatepass"
_TYPES = "dtype", "device", "layout", "memory_format", "qscheme"  # torch's


class Unreadable(Exception):
    """A file that is malformed, above a limit, or not to be read without executing it. The text
    completes `compared as a whole: …`."""


class Contents:
    """Rows (name, kind, dtype, shape, digest, value) of a file of `size` bytes, in its order;
    tensors by name; and its containers."""

    def __init__(self, size: int) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.tensors: dict[str, Any] = {}
        self._containers: list[str] = []
        self._bytes_left = FREE_BYTES + MAX_EXPANSION * size
        self._characters = 0

    def add(
        self,
        name: str,
        kind: str,
        dtype: str,
        shape: list[int] | None,
        digest: str,
        value: str | None = None,
    ) -> str:
        """Take one leaf; a name that comes again gets its place behind it. Raises Unreadable above
        the limits."""
        name = printable(name) or "(root)"
        while name in self.rows:
            name += f" ({len(self.rows) + 1})"
        value = value and printable(value[: MAX_VALUE + 1])
        if value and len(value) > MAX_VALUE:
            value = value[: MAX_VALUE - 1] + "…"
        self._characters += len(name) + len(value or "")
        if len(self.rows) >= MAX_LEAVES:
            raise Unreadable(f"it holds more than {MAX_LEAVES:,} leaves")
        if len(name) > MAX_NAME or self._characters > MAX_CHARACTERS:
            raise Unreadable("its names are too long")
        if max(shape or (), default=0) >= MAX_SIZE:
            raise Unreadable("a dimension of it is above 2**53")
        dtype = printable(dtype[:MAX_VALUE])
        self.rows[name] = [name, kind, dtype, shape, digest, value]
        return name

    def data(
        self,
        name: str,
        content: bytes,
        dtype: str = "bytes",
        value: str | None = None,
    ) -> None:
        digest = hashlib.sha256(content).hexdigest()
        self.add(name, "bytes", dtype, [len(content)], digest, value)

    def text(self, name: str, value: str, dtype: str = "str") -> None:
        self._value(name, "text", dtype, value.encode(*_TEXT), value)

    def container(self, name: str, kind: str) -> None:
        self._containers.append(f"{name}\0{kind}\n")

    def structure(self) -> str:
        """Return a digest over container types and the types of keys, blind to the order of
        keys."""
        lines = "".join(sorted(self._containers))
        return hashlib.sha256(lines.encode(*_TEXT)).hexdigest()

    def spend(self, count: int) -> None:
        """Take `count` bytes to digest off the file's budget."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise Unreadable("its tensors are far larger than the file that holds them")

    def tensor(self, name: str, tensor: Any) -> None:
        """Add a tensor by the digest that a trace has: dtype, shape and elements in logical
        order."""
        tensor = tensor.detach()
        self.container(name, "tensor " + type(tensor).__name__)
        strided = str(tensor.layout) == "torch.strided" and digest.in_memory(tensor)
        if strided:
            self.spend(tensor.numel() * tensor.element_size())
        digested = digest.digest_all([tensor]).hex()
        if digest.UNREAD:
            what, _ = digest.UNREAD.popitem()
            raise Unreadable(f"it holds {what}, which cannot be read")
        _, dtype, shape = digest.describe(name, tensor)
        single = strided and tensor.numel() == 1 and not tensor.is_quantized
        value = _single(tensor) if single else None
        sizes = list(shape)
        name = self.add(name, "tensor", dtype, sizes, digested, value)
        self.tensors[name] = tensor

    def array(self, name: str, array: Any) -> None:
        """Add a numpy array of numbers, texts or records. Raises Unreadable for one of objects,
        which is a pickle."""
        if array.dtype.hasobject:
            raise Unreadable("it holds an array of Python objects, which is a pickle")
        self.spend(array.nbytes)
        dtype = str(array.dtype)
        state = hashlib.sha256(f"{dtype}\0{array.shape}\0".encode())
        state.update(array.tobytes())  # in C order
        single = array.size == 1 and array.dtype.kind in "biufc"
        value = _single(array) if single else None
        shape = list(array.shape)
        name = self.add(name, "tensor", dtype, shape, state.hexdigest(), value)
        self.tensors[name] = array

    def walk(self, name: str, value: Any, depth: int = 0) -> None:
        """Add what a checkpoint holds under `name`. Raises Unreadable for an object of a type that
        is not known here, and for one that holds itself: that is nested too deep."""
        torch = sys.modules.get("torch")
        numpy = sys.modules.get("numpy")
        kind = type(value).__name__
        if torch is not None and isinstance(value, torch.Tensor):
            self.container(name, f"{kind} {value.requires_grad}")
            self.tensor(name, value)
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            self.container(name, kind)
            self.array(name, numpy.asarray(value))
        elif isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            self._walk_container(name, value, depth)
        elif isinstance(value, str):
            self.text(name, value)
        elif isinstance(value, (bytes, bytearray)):
            text = value.hex() if len(value) <= 32 else None
            self.data(name, bytes(value), kind, text)
        elif isinstance(value, (int, float, complex)):
            self._value(name, "number", kind, *_number(value))
        elif value is None:
            self.text(name, "None", "None")
        elif type(value) in [getattr(torch, it, None) for it in _TYPES]:
            self.text(name, str(value), kind)
        else:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise Unreadable(f"it holds an object of type {kind}")

    def _walk_container(self, name: str, value: Any, depth: int) -> None:
        kind = type(value).__name__
        if isinstance(value, dict):
            pairs = [(label_of(key), item) for key, item in value.items()]
            keys = [f"{type(key).__name__}:{label_of(key)}" for key in value]
            shape = " ".join(sorted(keys))
        else:
            items = value
            if isinstance(value, (set, frozenset)):
                items = sorted(value, key=repr)
            pairs = [(str(index), item) for index, item in enumerate(items)]
            shape = str(len(pairs))
        self.container(name, f"{kind} {shape}")
        if pairs and depth > MAX_DEPTH:
            raise Unreadable(f"it is nested deeper than {MAX_DEPTH} levels")
        for label, item in pairs:
            joined = f"{name}.{label}" if name else label
            if len(joined) > MAX_NAME:
                raise Unreadable(f"a name is longer than {MAX_NAME:,} characters")
            self.walk(joined, item, depth + 1)
        if not pairs:
            text = {"dict": "{}", "tuple": "()"}.get(kind, "[]")
            self.text(name, text, kind)

    def _value(self, name: str, kind: str, dtype: str, data: bytes, text: str) -> None:
        typed = dtype.encode() + b"\0" + data
        digest = hashlib.sha256(typed).hexdigest()
        self.add(name, kind, dtype, None, digest, text)


def _single(array: Any) -> str | None:
    """Return the one element; None for a NaN, of which the digest says more."""
    item = array.item()
    return repr(item) if item == item else None


def _number(value: Any) -> tuple[bytes, str]:
    """Return the bytes that are digested of a number, and its text."""
    if isinstance(value, int):
        return hex(value).encode(), decimal(value)
    if isinstance(value, complex):
        data = struct.pack("<dd", value.real, value.imag)
    else:
        data = struct.pack("<d", value)
    if value == value:
        return data, repr(value)
    return data, f"nan (0x{data[::-1].hex()})"
