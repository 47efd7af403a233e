"""What an operator dispatches: the names of its kernels, which of them gave other bits for equal
ones, which one refused the flag, and whether memory that nothing has written reaches the result."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..trace.dispatch import ASIDE, base, form, gives_unwritten, is_view, mode
from . import bits

MOST = 50  # names kept of one case
# What prepares or finishes nearly every operator. It is the kernel of a case only where nothing
# else was dispatched.
_COMMON = [
    "clone",
    "copy_",
    "_to_copy",
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "fill_",
    "zero_",
    "full",
    "full_like",
    "arange",
    "scalar_tensor",
]
Call = Tuple[str, str, str]  # name, digest of what went in, digest of what came out


class Record:
    """One execution: each operator in the order of its dispatch."""

    def __init__(self) -> None:
        self.names: List[str] = []
        self.forms: Dict[str, str] = {}  # of the first call of each name
        self.calls: List[Call] = []
        self.views: List[bool] = []
        self.random = False
        self.raised = ""  # the first operator that did

    def kernel(self) -> str:
        """The operator that does the work: the first that is neither a view nor common to all; in a
        backward, one that says so."""
        working = [name for name, view in zip(self.names, self.views) if not view]
        own = [name for name in working if base(name) not in _COMMON and not gives_unwritten(name)]
        backward = [name for name in own if "backward" in name]
        return (backward or own or working or self.names or [""])[0]

    def empty(self) -> str:
        """The first operator that gives memory as it is; "" for none."""
        return next((name for name in self.names if gives_unwritten(name)), "")


def record(
    torch: Any, run: Callable[[], Any], byte: Optional[int] = None, digests: bool = False
) -> Tuple[Record, Any]:
    """Run once and note what is dispatched. `byte`: fill with it whatever `empty` and its like
    give. `digests`: note those of each call.

    An exception of the operator's is passed on once it is noted: (record, None) where it says that
    the flag refuses it.
    """
    found = Record()
    try:
        with _mode(torch, found, byte, digests):
            result = run()
    except Exception:
        if not found.raised:
            raise
        return found, None
    return found, result


def first_differing(torch: Any, run: Callable[[], Any], first: List[Call], seconds: float) -> str:
    """The name of the first operator that, in one of many executions, gave other bits than in the
    first for equal ones; "" for none."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found, _ = record(torch, run, digests=True)
        for (name, given, got), (other, given_then, got_then) in zip(found.calls, first):
            if name != other or given != given_then:
                break  # what went in differs already: the cause was no operator's
            if got != got_then:
                return name
    return ""


def uninitialised(torch: Any, run: Callable[[], Any]) -> bool:
    """Whether what `empty` and its like hold shows in the result: two executions, each with its own
    byte written there."""
    results = [bits.leaves(torch, record(torch, run, byte)[1]) for byte in (0x5A, 0x35)]
    again = bits.leaves(torch, record(torch, run, 0x35)[1])
    return not bits.equal(torch, results[0], results[1]) and bits.equal(torch, results[1], again)


def _mode(torch: Any, found: Record, byte: Optional[int], digests: bool) -> Any:
    from torch.utils._pytree import tree_leaves

    seeded = getattr(getattr(torch, "Tag", None), "nondeterministic_seeded", None)

    def dispatched(function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        name = str(function)
        if name.startswith(ASIDE):
            return function(*args, **kwargs)
        given = _digest(torch, (args, kwargs)) if digests else ""
        # bytes that it keeps
        held = bits.size(args[0]) if base(name) in ("resize_", "resize_as_") else 0
        found.names.append(name)
        found.forms.setdefault(name, form(function, args, kwargs))
        found.views.append(is_view(function))
        try:
            result = function(*args, **kwargs)
        except Exception:
            found.raised = found.raised or name
            raise
        found.random = found.random or seeded in function.tags
        if byte is not None and gives_unwritten(name):
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    bits.fill(leaf, byte, held)
        if digests:
            written = (result, args) if function._schema.is_mutable else result
            found.calls.append((name, given, _digest(torch, written)))
        return result

    return mode(torch, dispatched)


def _digest(torch: Any, value: Any) -> str:
    try:
        return bits.digest(torch, bits.leaves(torch, value))
    except (
        RuntimeError,
        NotImplementedError,
    ):
        # a layout that cannot be read here: never told from another
        return ""
