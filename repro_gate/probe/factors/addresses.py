"""Where objects lie in memory, as the workspace asks for it: `id()`, the default `hash()`, and `data_ptr()`.

What C reads itself is out of sight: the default `repr()`, and the order of sets and dictionaries whose keys have the default hash. The
layout of the whole process is pinned from outside, by switching its randomisation off.
"""

from __future__ import annotations

import builtins
import functools
import sys
from typing import Any, Dict

from ..patch import wrap
from .use import Uses, outside

NAME = "addresses"
_OBJECTS = 1_000_000
_BASE = 0x7F00_0000_0000
_real_id = id


class _Known:
    """Pinned addresses: objects are numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: Dict[int, int] = {}

    def pinned(self, address: int, _stream: Any = None) -> int:
        if address not in self._numbers and len(self._numbers) >= _OBJECTS:
            return address
        return _BASE + 64 * self._numbers.setdefault(address, 1 + len(self._numbers))


def install(uses: Uses) -> None:
    """Wrap `id` and `hash`."""
    known = _Known()
    wrap(builtins, "id", functools.partial(_id, uses, known))
    wrap(builtins, "hash", functools.partial(_hash, uses, known))


def torch_arrived(torch: Any, uses: Uses) -> None:
    """Wrap the two that tell where a tensor's data lies. A kernel may be handed the address: it is pinned only where its line is named."""
    known = _Known()
    for kind in (torch.Tensor, torch.UntypedStorage):
        wrap(kind, "data_ptr", functools.partial(_data_ptr, uses, known, kind.__name__ + ".data_ptr"))


def _id(uses: Uses, known: _Known, original: Any, *args: Any) -> int:
    frame, number = sys._getframe(2), int(original(*args))
    if outside(frame):
        return number
    return int(uses.ask(NAME, "id", lambda: number, functools.partial(known.pinned, number), None, frame))


def _hash(uses: Uses, known: _Known, original: Any, *args: Any) -> int:
    frame, number = sys._getframe(2), int(original(*args))
    address = _real_id(args[0])
    if number not in (object.__hash__(args[0]), address) or outside(frame):  # the latter is how a tensor hashes
        return number

    def pinned(_stream: Any) -> int:
        return known.pinned(address) >> (0 if number == address else 4)

    return int(uses.ask(NAME, "hash", lambda: number, pinned, None, frame))


def _data_ptr(uses: Uses, known: _Known, source: str, original: Any, tensor: Any) -> int:
    frame, number = sys._getframe(2), int(original(tensor))
    if outside(frame):
        return number
    pinned = functools.partial(known.pinned, number) if uses.names_sites(NAME) else None
    return int(uses.ask(NAME, source, lambda: number, pinned, None, frame))
