"""Watches the operators that torch dispatches: records those of one step, counts them, or names
those that torch refuses under the flag. No run whose numbers count is watched.

A record has digests of what went in and came out, and the line of the workspace it is of. Two runs
compared by these records show the operator that got the same bits in and gave other bits out. A
replay runs one operator again on its own inputs, and counts the distinct outputs: with one thread
and with all, with and without the deterministic flag."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

from ..trace.dispatch import ASIDE, form, gives_unwritten, is_view, mode
from ..trace.format import MAX_DISPATCHED, MAX_NAME, MAX_OPERATORS, REFUSAL
from . import session, source_line
from .digest import digest_all

_EARLY = 20  # steps


def watching(torch: Any, config: Dict[str, Any]) -> Optional[Watching]:
    """Return who watches the operators of this run; None if nobody asked."""
    if config.get("operators"):
        return Operators(torch, config["operators"])
    if "refused" in config:
        return Refused(torch, config["refused"])
    return Dispatched(torch, config["dispatched"]) if "dispatched" in config else None


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
        """Watch the step in progress (-1: before the first), or do not."""
        if step > self.step:
            self.end()
        elif self.includes(step):
            self.begin()

    def includes(self, step: int) -> bool:
        """Return whether a step up to the last is watched."""
        return True

    def dispatched(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        """Take note of an operator and call it; return what it gives."""
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
        """Return (phase, backward node, line) of the operator being dispatched: one of the backward
        pass belongs to the line of its forward."""
        node = self.torch._C._current_autograd_node()
        if node is not None:
            return (
                "backward",
                node.name(),
                self._lines.get(node._sequence_nr(), ("", 0)),
            )
        frame: Any = sys._getframe(3)
        site, phase = source_line.nearest(frame), "forward"
        while frame is not None and phase == "forward":
            code = frame.f_code
            if (
                code.co_name in ("step", "_optimizer_step_code")
                and "/optim/" in code.co_filename
            ):
                phase = "optimizer"
            frame = frame.f_back
        number = self.torch._C._autograd._get_sequence_nr() - 1
        if phase == "forward" and len(self._lines) < MAX_OPERATORS:
            self._lines.setdefault(number, site)
        return phase, "", site

    def tensors(self, value: Any) -> List[Any]:
        """Return the tensors among arguments or results."""
        from torch.utils._pytree import tree_leaves

        return [
            leaf for leaf in tree_leaves(value) if isinstance(leaf, self.torch.Tensor)
        ]


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

    def includes(self, step: int) -> bool:
        """Return whether this is the step, or it is an early one."""
        return step == self.step or self.step <= _EARLY

    def dispatched(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        name, current = str(function), session.current()
        if name.startswith(ASIDE) or current.step > self.step or not current.live:
            return function(*args, **kwargs)
        phase, node, site = self.whose()
        with current.own_time():
            unwritten = self._is_unwritten(function, args)
            inputs = self._digests((args[1:] if unwritten else args, kwargs))
            inputs += self._generator(function, kwargs)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        replayed: Dict[str, Any] = {}
        if self.again is not None and self.again[:2] == [name, count]:
            with current.own_time():
                replayed["distinct"] = self._replay(
                    function, args, kwargs, self.again[2]
                )
        result = function(*args, **kwargs)
        self._follow(function, name, args, result)
        with current.own_time():
            changed = (
                self._digests((args, kwargs)) if function._schema.is_mutable else []
            )
            outputs = [] if gives_unwritten(name) else self._digests(result) + changed
            current.event(
                "operators",
                op=name[:200],
                count=count,
                phase=phase,
                node=node[:200],
                file=site[0][:MAX_NAME],
                line=site[1],
                inputs=inputs[:100],
                outputs=outputs[:100],
                simple=self.torch.Tag.pointwise in function.tags or is_view(function),
                **replayed,
            )
        return result

    def _is_unwritten(self, function: Any, args: Tuple[Any, ...]) -> bool:
        """Return whether an operator writes to memory that nothing has written: what that holds is
        no input (`uniform_` on `empty`)."""
        target = (
            self._addresses(args[0]) if function._schema.is_mutable and args else set()
        )
        return bool(target) and target <= self._unwritten

    def _follow(
        self, function: Any, name: str, args: Tuple[Any, ...], result: Any
    ) -> None:
        """Remember the memory that `empty` gives, until something writes there."""
        if ".empty" in name or ".new_empty" in name:
            self._unwritten |= self._addresses(result)
        elif not is_view(function):
            self._unwritten -= self._addresses(result)
            self._unwritten -= self._addresses(args[0]) if args else set()

    def _addresses(self, value: Any) -> Set[int]:
        """Return where a tensor, or each of a list, has its memory, if it has any of its own."""
        found = set()
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, self.torch.Tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    found.add(int(item.untyped_storage().data_ptr()))
        return found - {0}

    def _digests(self, value: Any) -> List[str]:
        digests = digest_all(self.torch, self.tensors(value))
        return [digests[at : at + 8].hex() for at in range(0, len(digests), 16)]

    def _generator(self, function: Any, kwargs: Dict[str, Any]) -> List[str]:
        """Return a digest of the generator that a random operator draws from: it is an input
        too."""
        if self.torch.Tag.nondeterministic_seeded not in function.tags:
            return []
        generator = kwargs.get("generator") or self.torch.default_generator
        return self._digests(generator.get_state())

    def _replay(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], times: int
    ) -> Dict[str, int]:
        """Return how many distinct outputs `times` executions on copies of the same inputs gave,
        for each way to run it; 0: it raised."""
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

        copied, distinct = (self.torch.Tensor, self.torch.clone), set()
        try:
            for _ in range(times):
                own_args, own_kwargs = tree_map_only(*copied, (args, kwargs))
                result = function(*own_args, **own_kwargs)
                if function._schema.is_mutable:
                    result = (result, own_args)
                distinct.add(tuple(self._digests(result)))
        except Exception:
            return 0
        return len(distinct)


class Dispatched(Watching):
    """Counts the operators of `step` by name, dtype, pass and form. If something was compiled
    before it, nothing: a compiled graph dispatches nothing, and would not run under this watch."""

    eager = False

    def __init__(self, torch: Any, step: int) -> None:
        super().__init__(torch, step)
        self._counts: Dict[Tuple[str, str, str, str], int] = {}

    def includes(self, step: int) -> bool:
        """Return whether this is the step, and nothing was compiled before."""
        return step == self.step and not _compiled()

    def end(self) -> None:
        """Write the counts."""
        if self._mode is not None:
            super().end()
            rows = [[*key, count] for key, count in self._counts.items()]
            session.current().event("dispatched", rows=rows)

    def dispatched(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        """Count an operator, unless it is the probe's own."""
        current = session.current()
        if current.live and not current.at_work():
            phase = (
                "forward"
                if self.torch._C._current_autograd_node() is None
                else "backward"
            )
            dtype = self._dtype((args, kwargs))
            key = str(function)[:200], dtype, phase, form(function, args, kwargs)
            if key in self._counts or len(self._counts) < MAX_DISPATCHED:
                self._counts[key] = self._counts.get(key, 0) + 1
        return function(*args, **kwargs)

    def _dtype(self, value: Any) -> str:
        """Return that of the first floating-point tensor, else of the first tensor."""
        tensors = self.tensors(value)
        floating = [
            item for item in tensors if item.is_floating_point() or item.is_complex()
        ]
        for item in floating or tensors:
            return str(item.dtype).replace("torch.", "")
        return ""


class Refused(Watching):
    """Names each operator that torch refuses, up to the end of `step`, with the line of its
    forward. It is then run without the flag: the training goes on, and all of them are named in one
    run."""

    def __init__(self, torch: Any, step: int) -> None:
        super().__init__(torch, step)
        self._known: Set[Tuple[str, str, str, int]] = set()

    def dispatched(
        self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        """Call an operator, without the flag if torch refuses it."""
        phase, _, (file, line) = self.whose()
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            refusal = re.search(REFUSAL, str(error))
            if refusal is None:
                raise
        current, op = session.current(), refusal.group(1)[:200]
        known = (op, phase, file, line)
        if known not in self._known:
            self._known.add(known)
            place = {"file": file[:MAX_NAME], "line": line, "step": current.step}
            current.event("refused", op=op, phase=phase, **place)
        setter: Any = self.torch._C._set_deterministic_algorithms
        # the probe notes what the training switches off
        setter = getattr(setter, "__wrapped__", setter)
        setter(False)
        try:
            return function(*args, **kwargs)
        finally:
            setter(True)


def _compiled() -> bool:
    """Return whether Dynamo has compiled anything in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"]["total"])
