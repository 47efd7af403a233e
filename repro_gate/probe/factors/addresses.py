"""Where objects lie in memory, as the workspace asks for it: `id()`, the default `hash()`, and
`data_ptr()`.

What C reads itself is out of sight: the default `repr()`, and the order of sets whose items have
the default hash, but for tensors: their hash is Python's. The layout of the whole process is pinned
from outside, by switching its randomisation off.
"""

from __future__ import annotations

import builtins
import dis
import sys
from types import FrameType
from typing import Any

from ...trace.format import SET_OF_TENSORS
from ..patch import wrap
from .use import USES, Stream, inside

NAME = "addresses"
_MOST = 1_000_000  # objects that are numbered
_BASE = 0x7F00_0000_0000
_real_id = id


class _Known:
    """Pinned addresses: objects are numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def pinned(self, address: int) -> int:
        if address not in self._numbers and len(self._numbers) >= _MOST:
            return address
        return _BASE + 64 * self._numbers.setdefault(address, 1 + len(self._numbers))


_OBJECTS = _Known()
_DATA = _Known()


def install() -> None:
    """Wrap `id` and `hash`."""
    USES.wrap(NAME, "builtins", "id", _pinned_id, own=True)
    wrap(builtins, "hash", _hash)


def torch_arrived(torch: Any) -> None:
    """Wrap the two that tell where a tensor's data lies, and a tensor's hash, which is its address.
    A kernel may be handed the address of data: it is pinned only where its line is named."""
    wrap(torch.Tensor, "__hash__", _tensor_hash)
    names = "Tensor.data_ptr UntypedStorage.data_ptr"
    USES.wrap(NAME, "torch", names, _pinned_data, own=True)


def _pinned_id(_: Stream, address: int) -> int:
    return _OBJECTS.pinned(address)


def _pinned_data(_: Stream, address: int) -> int:
    return address if USES.pinned(NAME) else _DATA.pinned(address)


def _hash(original: Any, *args: Any) -> int:
    number = int(original(*args))
    address = _real_id(args[0])
    # the latter is how a tensor hashes
    if number not in (object.__hash__(args[0]), address):
        return number
    shift = 0 if number == address else 4

    def pinned(_: Stream, number: int) -> int:
        return _OBJECTS.pinned(address) >> shift

    return int(USES.ask(NAME, "hash", lambda: number, pinned, own=True))


def _tensor_hash(original: Any, tensor: Any) -> int:
    """Return the one hash of a tensor for all who look it up: it is pinned with addresses as a
    whole, never at single lines."""
    number = int(original(tensor))
    frame = sys._getframe(2)
    if USES.pinned(NAME):
        number = _OBJECTS.pinned(number)
    if USES.watch and inside(frame) and _makes_a_set(frame):
        USES.note(NAME, SET_OF_TENSORS, number)
    return number


def _makes_a_set(frame: FrameType) -> bool:
    """Return whether the frame makes a set or calls what may: a dictionary keeps the order in which
    it was filled."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" in name or "SET_" in name or name == "BUILD_SET"
