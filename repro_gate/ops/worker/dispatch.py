"""What an operator dispatches: the names of its kernels, which of them gave other bits for equal
ones, which one refused the flag, and whether memory that nothing has written reaches the result."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, NamedTuple

from ...trace.dispatch import ASIDE, base, form, gives_unwritten, is_view, mode
from . import bits

# What prepares or finishes nearly every operator. It is the kernel of a case only if nothing else
# was dispatched.
_COMMON = re.compile(
    "(clone|copy_|_to_copy|(new_)?(zeros|ones)|(zeros|ones|full)_like|fill_|zero_|full|arange"
    "|scalar_tensor)"
)


class Call(NamedTuple):
    """One operator as it was dispatched."""

    name: str
    form: str
    view: bool
    given: str  # digest of what went in
    got: list[str]  # digest of what came out; empty if it raised


class Record:
    """One execution: each operator in the order of its dispatch, and what came of it all."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.raised: Call | None = None  # the first that did
        self.result: Any = None

    def kernel(self) -> Call:
        """Return the operator that does the work: the first that is neither a view nor common to
        all; in a backward, one that says so."""
        working = [call for call in self.calls if not call.view]
        own = [
            call
            for call in working
            if not _COMMON.fullmatch(base(call.name)) and not gives_unwritten(call.name)
        ]
        backward = [call for call in own if "backward" in call.name]
        return (backward or own or working or self.calls or [Call("", "", False, "", [])])[0]


def record(
    torch: Any, run: Callable[[], Any], byte: int | None = None, digests: bool = False
) -> Record:
    """Run once and note what is dispatched. `byte`: fill with it whatever `empty` and its like
    give. `digests`: note those of each call. An operator's exception ends the record."""
    found = Record()

    def dispatched(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(function)
        if name.startswith(ASIDE):
            return function(*args, **kwargs)
        given = _digest(torch, (args, kwargs)) if digests else ""
        # bytes that it keeps
        held = bits.size(args[0]) if base(name) in ("resize_", "resize_as_") else 0
        call = Call(name, form(function, args, kwargs), is_view(function), given, [])
        found.calls.append(call)
        try:
            result = function(*args, **kwargs)
        except Exception:
            found.raised = found.raised or call
            raise
        if byte is not None and gives_unwritten(name):
            for tensor in bits.tensors(torch, result):
                if bits.size(tensor) > held:
                    tensor.untyped_storage()[held:].fill_(byte)
        if digests:
            written = (result, args) if function._schema.is_mutable else result
            call.got.append(_digest(torch, written))
        return result

    try:
        with mode(torch, dispatched):
            found.result = run()
    except Exception:
        if found.raised is None:
            raise
    return found


def first_differing(torch: Any, run: Callable[[], Any], seconds: float) -> Call | None:
    """Return the first operator that, in one of many executions, gave other bits than in the first
    for equal ones; None if none did."""
    first = record(torch, run, digests=True).calls
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for call, before in zip(record(torch, run, digests=True).calls, first):
            if (call.name, call.given) != (before.name, before.given):
                break  # what went in differs already: the cause was no operator's
            if call.got != before.got:
                return before
    return None


def uninitialised(torch: Any, run: Callable[[], Any]) -> bool:
    """Return whether what `empty` and its like hold shows in the result: two executions, each with
    its own byte written there."""
    one, other, again = (
        bits.leaves(torch, record(torch, run, byte).result) for byte in (0x5A, 0x35, 0x35)
    )
    return not bits.equal(torch, one, other) and bits.equal(torch, other, again)


def _digest(torch: Any, value: Any) -> str:
    try:
        return bits.digest(torch, bits.leaves(torch, value))
    except (RuntimeError, NotImplementedError):
        # a layout that cannot be read here: never told from another
        return ""
