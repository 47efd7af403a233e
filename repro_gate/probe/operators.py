"""Records each operator that torch dispatches in one step: digests of what went in and came out,
and the line of the workspace it is of.

Two runs compared by these records show the operator that got the same bits in and gave other bits
out. A replay runs one operator again on its own inputs, and counts the distinct outputs: with one
thread and with all, with and without the deterministic flag.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

from ..trace.dispatch import ASIDE, gives_unwritten, is_view, mode
from ..trace.format import MAX_NAME
from ..trace.format import MAX_OPERATORS as _MOST
from . import session, source_line
from .digest import digest_all

_EARLY = 20  # steps


class Watching:
    """Sees every operator that torch dispatches from `begin` to `end`, and whose it is. `step` is
    the last step that is watched.

    `eager`: no compiled graph runs meanwhile, for it dispatches nothing.
    """

    eager = True

    def __init__(self, torch: Any, step: int) -> None:
        self.torch, self.step = torch, step
        # sequence number of a backward node -> the line of its forward
        self._lines: Dict[int, Tuple[str, int]] = {}
        self._mode: Any = None

    def at(self, step: int) -> None:
        """Told of the step in progress, -1 before the first: watch it or not."""
        raise NotImplementedError

    def dispatched(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Told of an operator, which it calls: what that gives."""
        raise NotImplementedError

    def begin(self) -> None:
        """Watch from here on."""
        if self._mode is None:
            stance = getattr(getattr(self.torch, "compiler", None), "set_stance", None)
            if stance is not None and self.eager:
                stance("force_eager")
            self._mode = mode(self.torch, self.dispatched, aside=not self.eager)
            self._mode.__enter__()

    def end(self) -> None:
        """Watch no more."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)

    def whose(self) -> Tuple[str, str, Tuple[str, int]]:
        """(phase, backward node, line) of the operator being dispatched: one of the backward pass
        belongs to the line of its forward."""
        node = self.torch._C._current_autograd_node()
        if node is not None:
            return "backward", node.name(), self._lines.get(node._sequence_nr(), ("", 0))
        frame: Any = sys._getframe(3)
        site, phase = source_line.nearest(frame), "forward"
        while frame is not None and phase == "forward":
            if (
                frame.f_code.co_name in ("step", "_optimizer_step_code")
                and "/optim/" in frame.f_code.co_filename
            ):
                phase = "optimizer"
            frame = frame.f_back
        number = self.torch._C._autograd._get_sequence_nr() - 1
        if phase == "forward" and len(self._lines) < _MOST:
            self._lines.setdefault(number, site)
        return phase, "", site


class Operators(Watching):
    """Records the operators of `step` (-1: all before the first); where it is early, those of all
    before it too, for a divergence may come sooner this time.

    `again` names the one to replay: (operator, which time it was dispatched in the step, how often
    to replay it); None for none.
    """

    def __init__(self, torch: Any, config: Dict[str, Any]) -> None:
        super().__init__(torch, config["step"])
        self.again = config.get("replay")
        self._counts: Dict[str, int] = {}
        # addresses of storages that `empty` gave and that nothing has written yet
        self._unwritten: Set[int] = set()
        self._number = 0

    def at(self, step: int) -> None:
        """Records of what leads to the first step count as its own."""
        if step == self.step or (step < self.step and self.step <= _EARLY):
            self.begin()
        elif step > self.step:
            self.end()

    def dispatched(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        name, current = str(function), session.current()
        if name.startswith(ASIDE) or current.step > self.step or not current.live:
            return function(*args, **kwargs)
        phase, node, site = self.whose()
        with current.own_time():
            inputs = self._digests(
                (args[1:] if self._is_unwritten(function, args) else args, kwargs)
            )
            state = self._generator(function, kwargs)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        distinct = None
        if self.again is not None and self.again[:2] == [name, count]:
            with current.own_time():
                distinct = self._replay(function, args, kwargs, self.again[2])
        result = function(*args, **kwargs)
        self._follow(function, name, args, result)
        if self._number < _MOST:
            with current.own_time():
                changed = self._digests((args, kwargs)) if function._schema.is_mutable else []
                simple = self.torch.Tag.pointwise in function.tags or is_view(function)
                outputs = [] if gives_unwritten(name) else self._digests(result) + changed
                self._number += 1
                current.event(
                    "operator",
                    op=name[:200],
                    count=count,
                    phase=phase,
                    node=node[:200],
                    file=site[0][:MAX_NAME],
                    line=site[1],
                    inputs=(inputs + state)[:100],
                    outputs=outputs[:100],
                    simple=simple,
                    **({} if distinct is None else {"distinct": distinct}),
                )
        return result

    def _is_unwritten(self, function: Any, args: Tuple[Any, ...]) -> bool:
        """Whether an operator writes to memory that nothing has written: what that holds is no
        input (`uniform_` on `empty`)."""
        target = self._addresses(args[0]) if function._schema.is_mutable and args else set()
        return bool(target) and target <= self._unwritten

    def _follow(self, function: Any, name: str, args: Tuple[Any, ...], result: Any) -> None:
        """Remember the memory that `empty` gives, until something writes there."""
        if ".empty" in name or ".new_empty" in name:
            self._unwritten |= self._addresses(result)
        elif not is_view(function):
            self._unwritten -= self._addresses(result)
            self._unwritten -= self._addresses(args[0]) if args else set()

    def _addresses(self, value: Any) -> Set[int]:
        """Where a tensor, or each of a list, has its memory; nothing for one that has none of its
        own."""
        found = set()
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, self.torch.Tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    found.add(int(item.untyped_storage().data_ptr()))
        return found - {0}

    def _digests(self, value: Any) -> List[str]:
        from torch.utils._pytree import tree_leaves

        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, self.torch.Tensor)]
        digests = digest_all(self.torch, tensors)
        return [digests[at : at + 8].hex() for at in range(0, len(digests), 16)]

    def _generator(self, function: Any, kwargs: Dict[str, Any]) -> List[str]:
        """A digest of the generator that a random operator draws from: it is an input too."""
        if self.torch.Tag.nondeterministic_seeded not in function.tags:
            return []
        generator = kwargs.get("generator") or self.torch.default_generator
        return self._digests(generator.get_state())

    def _replay(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], times: int
    ) -> Dict[str, int]:
        """How many distinct outputs `times` executions on copies of the same inputs gave, for each
        way to run it; 0: it raised."""
        torch = self.torch
        enabled = torch.are_deterministic_algorithms_enabled()
        warn = torch.is_deterministic_algorithms_warn_only_enabled()
        threads, found = torch.get_num_threads(), {}
        try:
            for name, on, count in (
                ("as-trained", enabled, threads),
                ("one-thread", enabled, 1),
                ("deterministic", True, threads),
                ("default", False, threads),
            ):
                torch.set_num_threads(count)
                torch.use_deterministic_algorithms(on, warn_only=warn and on)
                found[name] = self._distinct(function, args, kwargs, times)
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(enabled, warn_only=warn)
        return found

    def _distinct(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], times: int
    ) -> int:
        from torch.utils._pytree import tree_map_only

        seen = set()
        try:
            for _ in range(times):
                own_args, own_kwargs = tree_map_only(
                    self.torch.Tensor, self.torch.clone, (args, kwargs)
                )
                result = function(*own_args, **own_kwargs)
                seen.add(
                    tuple(
                        self._digests((result, own_args) if function._schema.is_mutable else result)
                    )
                )
        except Exception:
            return 0
        return len(seen)
