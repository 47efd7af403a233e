"""What one artifact holds, as rows that can be compared: every tensor, array, number and text by
its name, with a digest.

One place gives the tensors of a checkpoint their names (`optimizer.state.0.exp_avg`) and bounds
what a hostile file may hold.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import digest
from .process import printable

MAX_LEAVES = 250_000  # of one file
MAX_DEPTH = 100  # of nested containers
MAX_NAME = 4096  # characters of one leaf's name
MAX_CHARACTERS = 64 * 2**20  # of all names and values of one file
MAX_SIZE = 2**53  # of one dimension: above it a JSON number is no longer exact
MAX_VALUE = 200  # characters of a value that is shown; its digest covers all of it
# bytes digested whatever a file's size, and for each of its bytes: views share storages
FREE_BYTES, MAX_EXPANSION = 64 * 2**20, 16


class Unreadable(Exception):
    """A file that is malformed, above a limit, or not to be read without executing it. The text
    completes `compared as a whole: …`."""


class Contents:
    """Rows (name, kind, dtype, shape, digest, value) of a file of `size` bytes, in its order;
    tensors by name; and its containers."""

    def __init__(self, size: int) -> None:
        self.rows: Dict[str, List[Any]] = {}
        self.tensors: Dict[str, Any] = {}
        self._containers: List[str] = []
        self._bytes_left = FREE_BYTES + MAX_EXPANSION * size
        self._characters = 0
        self._known: Dict[
            Any, str
        ] = {}  # digests of tensors that share storage, shape and strides
        self._counts: Dict[str, int] = {}

    def add(
        self,
        name: str,
        kind: str,
        dtype: str,
        shape: Optional[List[int]],
        digest: str,
        value: Optional[str] = None,
    ) -> str:
        """Take one leaf; a name that comes again gets ` (2)` behind it. Raises Unreadable above the
        limits."""
        name = first = printable(name) or "(root)"
        while name in self.rows:
            self._counts[first] = self._counts.get(first, 1) + 1
            name = "%s (%d)" % (first, self._counts[first])
        if value is not None:
            value = printable(value[: MAX_VALUE + 1])
            value = value if len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + "…"
        self._characters += len(name) + len(value or "")
        if len(self.rows) >= MAX_LEAVES:
            raise Unreadable("it holds more than {:,} leaves".format(MAX_LEAVES))
        if len(name) > MAX_NAME or self._characters > MAX_CHARACTERS:
            raise Unreadable("its names are too long")
        if max(shape or (), default=0) >= MAX_SIZE:
            raise Unreadable("a dimension of it is above 2**53")
        self.rows[name] = [
            name,
            kind,
            printable(dtype[:MAX_VALUE]),
            shape,
            digest,
            value,
        ]
        return name

    def data(
        self,
        name: str,
        content: bytes,
        dtype: str = "bytes",
        value: Optional[str] = None,
    ) -> None:
        self.add(
            name,
            "bytes",
            dtype,
            [len(content)],
            hashlib.sha256(content).hexdigest(),
            value,
        )

    def text(self, name: str, value: str, dtype: str = "str") -> None:
        self._plain(name, "text", dtype, value.encode("utf-8", "surrogatepass"), value)

    def container(self, name: str, kind: str) -> None:
        self._containers.append("%s\0%s" % (name, kind))

    def spend(self, count: int) -> None:
        """Take `count` bytes to digest off the file's budget."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise Unreadable("its tensors are far larger than the file that holds them")

    def tensor(self, torch: Any, name: str, tensor: Any) -> None:
        """Add a tensor by the digest that a trace has: dtype, shape and elements in logical
        order."""
        tensor = tensor.detach()
        self.container(name, "tensor " + type(tensor).__name__)
        strided = tensor.layout is torch.strided and digest.in_memory(torch, tensor)
        key: Any = None
        if strided:
            key = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
            key += tensor.is_conj(), tensor.is_neg()
        found = self._known.get(key) if strided else None
        if found is None:
            self.spend(tensor.numel() * tensor.element_size() if strided else 0)
            found = self._known[key] = digest.digest_all(torch, [tensor]).hex()
            if digest.UNREAD:
                raise Unreadable(
                    "it holds a tensor of a type that cannot be read (%s)"
                    % digest.UNREAD.popitem()[0]
                )
        _, dtype, shape = digest.describe(name, tensor)
        single = strided and tensor.numel() == 1 and not tensor.is_quantized
        item = tensor.item() if single else None
        # the digests of two NaNs say more
        value = repr(item) if item is not None and item == item else None
        self.tensors[self.add(name, "tensor", dtype, list(shape), found, value)] = (
            tensor
        )

    def array(self, name: str, array: Any) -> None:
        """Add a numpy array of numbers, texts or records. Raises Unreadable for one of objects,
        which is a pickle."""
        if array.dtype.hasobject:
            raise Unreadable("it holds an array of Python objects, which is a pickle")
        self.spend(array.nbytes)
        kind = array.dtype
        plain = kind.names is None and kind.isnative and kind.kind in "biufc"
        dtype = str(kind if plain else kind.descr if kind.names else kind.str)
        state = hashlib.sha256(("%s\0%s\0" % (dtype, array.shape)).encode())
        state.update(array.tobytes())  # in C order
        shown = plain and array.size == 1 and not (array != array).any()
        value = repr(array.reshape(-1)[0].item()) if shown else None
        name = self.add(
            name, "tensor", dtype, list(array.shape), state.hexdigest(), value
        )
        self.tensors[name] = array

    def walk(
        self, name: str, value: Any, depth: int = 0, above: Tuple[int, ...] = ()
    ) -> None:
        """Add what a checkpoint holds under `name`. Raises Unreadable for an object of a type that
        is not known here."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            self.container(name, "%s %s" % (type(value).__name__, value.requires_grad))
            self.tensor(torch, name, value)
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            self.container(name, type(value).__name__)
            self.array(name, numpy.asarray(value))
        elif id(value) in above:
            self.text(name, "holds itself", "reference")
        elif (
            isinstance(value, (dict, list, tuple, set, frozenset))
            or type(value).__name__ == "deque"
        ):
            self._walk_container(name, value, depth, (*above, id(value)))
        elif torch is not None and isinstance(
            value,
            (
                torch.dtype,
                torch.device,
                torch.layout,
                torch.memory_format,
                torch.qscheme,
            ),
        ):
            self.text(name, str(value), type(value).__name__)
        else:
            self._scalar(name, value)

    def structure(self) -> str:
        """Return a digest over container types and the types of keys, blind to the order of
        keys."""
        lines = (
            line.encode("utf-8", "surrogatepass") + b"\n"
            for line in sorted(self._containers)
        )
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def _walk_container(
        self, name: str, value: Any, depth: int, above: Tuple[int, ...]
    ) -> None:
        kind = type(value).__name__
        if isinstance(value, dict):
            pairs = [(_key(key), item) for key, item in value.items()]
            types = (type(key).__name__ for key in value)
            shape = " ".join(
                sorted(
                    "%s:%s" % pair for pair in zip(types, (label for label, _ in pairs))
                )
            )
        else:
            items = value
            if isinstance(value, (set, frozenset)):
                items = sorted(
                    value, key=lambda item: (type(item).__name__, repr(item))
                )
            pairs = [(str(index), item) for index, item in enumerate(items)]
            shape = str(len(pairs))
        self.container(name, "%s %s" % (kind, shape))
        if pairs and depth > MAX_DEPTH:
            raise Unreadable("it is nested deeper than %d levels" % MAX_DEPTH)
        for label, item in pairs:
            joined = "%s.%s" % (name, label) if name else label
            if len(joined) > MAX_NAME:
                raise Unreadable(
                    "a name is longer than {:,} characters".format(MAX_NAME)
                )
            self.walk(joined, item, depth + 1, above)
        if not pairs:
            self.text(name, {"dict": "{}", "tuple": "()"}.get(kind, "[]"), kind)

    def _scalar(self, name: str, value: Any) -> None:
        kind = type(value).__name__
        if isinstance(value, str):
            self.text(name, value)
        elif isinstance(value, (bytes, bytearray)):
            self.data(
                name, bytes(value), kind, value.hex() if len(value) <= 32 else None
            )
        elif value is None:
            self.text(name, "None", "None")
        elif isinstance(value, (int, float, complex)):
            self._plain(name, "number", *_number(value))
        else:
            raise Unreadable(
                "it holds an object of type %s.%s"
                % (type(value).__module__, type(value).__qualname__)
            )

    def _plain(self, name: str, kind: str, dtype: str, data: bytes, value: str) -> None:
        found = hashlib.sha256(dtype.encode() + b"\0" + data).hexdigest()
        self.add(name, kind, dtype, None, found, value)


def _number(value: Any) -> Tuple[str, bytes, str]:
    """Return the type of a number, the bytes that are digested of it, and its text."""
    if isinstance(value, bool):
        return "bool", str(value).encode(), str(value)
    if isinstance(value, int):
        small = (
            value.bit_length() <= 4096
        )  # decimal conversion of a longer one is quadratic
        text = str(value) if small else "an integer of %d bits" % value.bit_length()
        return "int", hex(value).encode(), text
    if isinstance(value, complex):
        return "complex", struct.pack("<dd", value.real, value.imag), repr(value)
    data = struct.pack("<d", value)
    usual = value == value or data == struct.pack("<d", float("nan"))
    return "float", data, repr(value) if usual else "nan (0x%s)" % data[::-1].hex()


def _key(key: Any) -> str:
    """Return a key as text: `0`, `weight`, `(1, 2)`."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple) and len(key) <= 16:
        return "(" + ", ".join(map(_key, key)) + ")"
    if isinstance(key, int) and key.bit_length() >= 4096:
        return hex(key)
    if isinstance(key, (int, float, bytes)) or key is None:
        return repr(key)
    return str(key) if type(key).__module__ == "torch" else "<%s>" % type(key).__name__
