"""Where objects lie in memory, as the workspace asks for it: `id()`, the default `hash()`, and
`data_ptr()`.

What C reads itself is out of sight: the default `repr()`, and the order of sets whose items have
the default hash, but for tensors: their hash is Python's. The layout of the whole process is pinned
from outside, by switching its randomisation off.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
from types import FrameType
from typing import Any, Callable, Dict, Optional

from ...trace.format import SET_OF_TENSORS
from ..patch import wrap
from .use import USES, outside

NAME = "addresses"
_MOST = 1_000_000  # objects that are numbered
_BASE = 0x7F00_0000_0000
_real_id = id


class _Known:
    """Pinned addresses: objects are numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: Dict[int, int] = {}

    def pinned(self, address: int) -> int:
        if address not in self._numbers and len(self._numbers) >= _MOST:
            return address
        return _BASE + 64 * self._numbers.setdefault(address, 1 + len(self._numbers))


_OBJECTS, _DATA = _Known(), _Known()


def install() -> None:
    """Wrap `id` and `hash`."""
    wrap(builtins, "id", _id)
    wrap(builtins, "hash", _hash)


def torch_arrived(torch: Any) -> None:
    """Wrap the two that tell where a tensor's data lies, and a tensor's hash, which is its address.
    A kernel may be handed the address of data: it is pinned only where its line is named."""
    wrap(torch.Tensor, "__hash__", _tensor_hash)
    for kind in (torch.Tensor, torch.UntypedStorage):
        source = kind.__name__ + ".data_ptr"
        wrap(kind, "data_ptr", functools.partial(_data_ptr, source))


def _id(original: Any, *args: Any) -> int:
    return _told("id", int(original(*args)), _OBJECTS.pinned)


def _hash(original: Any, *args: Any) -> int:
    number, address = int(original(*args)), _real_id(args[0])
    # the latter is how a tensor hashes
    if number not in (object.__hash__(args[0]), address):
        return number
    shift = 0 if number == address else 4
    return _told("hash", number, lambda _: _OBJECTS.pinned(address) >> shift)


def _data_ptr(source: str, original: Any, tensor: Any) -> int:
    pinned = _DATA.pinned if USES.names_sites(NAME) else None
    return _told(source, int(original(tensor)), pinned)


def _told(source: str, number: int, pinned: Optional[Callable[[int], int]]) -> int:
    """Return what the caller is told, three frames up, in place of a number that was `number`."""
    fixed = None if pinned is None else lambda _: pinned(number)
    return int(USES.ask(NAME, source, lambda: number, fixed, None, sys._getframe(3), own=True))


def _tensor_hash(original: Any, tensor: Any) -> int:
    """A tensor must have one hash for all who look it up: pinned it is with addresses as a whole,
    never at single lines."""
    frame, number = sys._getframe(2), int(original(tensor))
    given = _OBJECTS.pinned(number) if USES.pinned(NAME, ("", 0)) else number
    if USES.watch and not outside(frame) and _makes_a_set(frame):
        USES.note(NAME, SET_OF_TENSORS, given, frame)
    return given


def _makes_a_set(frame: FrameType) -> bool:
    """Whether the frame makes a set or calls what may: a dictionary keeps the order in which it was
    filled."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" in name or "SET_" in name or name == "BUILD_SET"
