"""Two notes on the operators of a training: which it dispatches in one step, and which of them
torch refuses under the flag.

Neither is taken in a run whose numbers count: the first in the control, the second in a run of its
own, after one that torch ended.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Dict, Optional, Set, Tuple

from ..trace.dispatch import form
from ..trace.format import MAX_DISPATCHED, MAX_NAME, MAX_REFUSED, REFUSAL
from . import session
from .operators import Operators, Watching


def watching(torch: Any, config: Dict[str, Any]) -> Optional[Watching]:
    """Who watches the operators of this run; None where nobody asked."""
    if config.get("operators"):
        return Operators(torch, config["operators"])
    if "refused" in config:
        return Refused(torch, config["refused"])
    return Dispatched(torch, config["dispatched"]) if "dispatched" in config else None


class Dispatched(Watching):
    """Counts the operators of `step` by name, dtype, pass and form. Where something was compiled
    before it, nothing: a compiled graph dispatches nothing, and would not run under this watch."""

    eager = False

    def __init__(self, torch: Any, step: int) -> None:
        super().__init__(torch, step)
        self._seen: Dict[Tuple[str, str, str, str], int] = {}

    def at(self, step: int) -> None:
        """The one step."""
        if step == self.step and not _compiled():
            self.begin()
        elif step > self.step and self._mode is not None:
            self.end()
            rows = [
                [op[:200], dtype[:100], phase, chosen, count]
                for (op, dtype, phase, chosen), count in self._seen.items()
            ]
            session.current().event("dispatched", rows=rows)

    def dispatched(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Counts it, unless it is the probe's own."""
        current = session.current()
        if current.live and not current.depth:
            phase = "forward" if self.torch._C._current_autograd_node() is None else "backward"
            key = str(function), self._dtype((args, kwargs)), phase, form(function, args, kwargs)
            if key in self._seen or len(self._seen) < MAX_DISPATCHED:
                self._seen[key] = self._seen.get(key, 0) + 1
        return function(*args, **kwargs)

    def _dtype(self, value: Any) -> str:
        """That of the first floating-point tensor, else of the first tensor; empty where there is
        none."""
        from torch.utils._pytree import tree_leaves

        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, self.torch.Tensor)]
        chosen = next(
            (item for item in tensors if item.is_floating_point() or item.is_complex()),
            tensors[0] if tensors else None,
        )
        return "" if chosen is None else str(chosen.dtype).replace("torch.", "")


class Refused(Watching):
    """Names each operator that torch refuses, up to the end of `step`, with the line of its
    forward. It is then run without the flag: the training goes on, and all of them are named in one
    run."""

    def __init__(self, torch: Any, step: int) -> None:
        super().__init__(torch, step)
        self._told: Set[Tuple[str, str, str, int]] = set()

    def at(self, step: int) -> None:
        """From the beginning on."""
        if step <= self.step:
            self.begin()
        else:
            self.end()

    def dispatched(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Calls it, without the flag where torch refuses it."""
        phase, _, (file, line) = self.whose()
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            refusal = re.search(REFUSAL, str(error))
            if refusal is None:
                raise
        note = (refusal.group(1)[:200], phase, file[:MAX_NAME], line)
        current = session.current()
        if note not in self._told and len(self._told) < MAX_REFUSED:
            self._told.add(note)
            current.event(
                "refused", **dict(zip(("op", "phase", "file", "line"), note)), step=current.step
            )
        setter: Any = self.torch._C._set_deterministic_algorithms
        # the probe notes what the training switches off
        setter = getattr(setter, "__wrapped__", setter)
        setter(False)
        try:
            return function(*args, **kwargs)
        finally:
            setter(True)


def _compiled() -> bool:
    """Whether Dynamo has compiled anything in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"]["total"])
