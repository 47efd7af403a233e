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
from .use import RUN, Stream, ask, ask_about, inside, is_pinned, note

NAME = "addresses"
_MOST = 1_000_000  # objects that are numbered
_BASE = 0x7F00_0000_0000
_NUMBERS: dict[int, int] = {}  # address -> number, in the order of the first questions
_real_id = id


def install() -> None:
    """Wrap `id` and `hash`."""
    ask_about(NAME, "builtins", "id", _pinned, own=True)
    wrap(builtins, "hash", _hash)


def torch_arrived(torch: Any) -> None:
    """Wrap the two that tell where a tensor's data lies, and a tensor's hash, which is its address.
    A kernel may be handed the address of data: it is pinned only where its line is named."""
    wrap(torch.Tensor, "__hash__", _tensor_hash)
    names = "Tensor.data_ptr UntypedStorage.data_ptr"
    ask_about(NAME, "torch", names, _pinned_data, own=True)


def _pinned(_: object, address: int) -> int:
    if address not in _NUMBERS and len(_NUMBERS) >= _MOST:
        return address
    return _BASE + 64 * _NUMBERS.setdefault(address, 1 + len(_NUMBERS))


def _pinned_data(_: Stream, address: int) -> int:
    return address if is_pinned(NAME) else _pinned(_, address)


def _hash(original: Any, *args: Any) -> int:
    number = int(original(*args))
    address = _real_id(args[0])
    # the latter is how a tensor hashes
    if number not in (object.__hash__(args[0]), address):
        return number
    shift = 0 if number == address else 4

    return int(
        ask(
            NAME,
            "hash",
            lambda: number,
            lambda *_: _pinned(None, address) >> shift,
            own=True,
        )
    )


def _tensor_hash(original: Any, tensor: Any) -> int:
    """Return the one hash of a tensor for all who look it up: it is pinned with addresses as a
    whole, never at single lines."""
    number = int(original(tensor))
    frame = sys._getframe(2)
    if is_pinned(NAME):
        number = _pinned(None, number)
    if RUN.watch and inside(frame) and _makes_a_set(frame):
        note(NAME, SET_OF_TENSORS, number)
    return number


def _makes_a_set(frame: FrameType) -> bool:
    """Return whether the frame makes a set or calls what may: a dictionary keeps the order in which
    it was filled."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" in name or "SET_" in name or name == "BUILD_SET"
