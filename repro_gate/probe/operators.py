"""Watches the operators that torch dispatches: records those of one step or its distinct calls, or
names those that torch refuses under the flag. No run whose numbers count is watched.

A record has digests of what went in and came out, and the line of the workspace it is of. Two runs
compared by these records show the operator that got the same bits in the same form and gave other
bits out. A replay runs one operator again on its own inputs, and counts the distinct outputs: with
one thread and with all, with and without the deterministic flag."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import math
import re
import sys
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from ..trace import dispatch
from ..trace.format import MAX_CALLS, MAX_FORM, MAX_OPERATORS, REFUSAL
from . import distance, session, source_line
from .digest import digest_all, in_memory
from .forms import described
from .shared import unseen

_EARLY = 20  # steps
_MOST_KEPT = 10 * MAX_CALLS  # distinct calls of which the most frequent are written
# arguments whose text is their value
_PLAIN = (
    int,
    float,
    complex,
    str,
    tuple,
    torch.dtype,
    torch.device,
    torch.memory_format,
)


def watching(config: dict[str, Any]) -> Watching:
    """Return who watches the operators of this run; if nobody asked, one who watches no step."""
    if config.get("operators"):
        return Operators(**config["operators"])
    if "refused" in config:
        return Refused(config["refused"])
    return Calls(config.get("calls", -2))  # -2: none


class Watching:
    """Sees every operator that torch dispatches in the steps that it includes, and whose it is.
    `step` is the last step that is watched.

    `eager`: no compiled graph runs meanwhile, for it dispatches nothing.
    """

    eager = True

    def __init__(self, step: int) -> None:
        self.step = step
        # sequence number of a backward node -> the line of its forward
        self._lines: dict[int, tuple[str, int]] = {}
        self._mode: Any = None

    def at(self, step: int) -> None:
        """Watch the step in progress (-1: before the first), or do not."""
        if step > self.step and self._mode is not None:
            self._leave()
            self.over()
        elif step <= self.step and self._mode is None and self.includes(step):
            stance = getattr(torch.compiler, "set_stance", None)
            if stance is not None and self.eager:
                stance("force_eager")
            self._mode = dispatch.mode(torch, self.dispatched, aside=not self.eager)
            self._mode.__enter__()

    def _leave(self) -> None:
        """Take this mode off the stack, from below those that the training has put there since."""
        modes = torch.utils._python_dispatch
        above = []
        while modes._get_current_dispatch_mode() not in (self._mode, None):
            above.append(modes._pop_mode())
        if modes._get_current_dispatch_mode() is not None:
            self._mode.__exit__(None, None, None)
        self._mode = None
        for mode in reversed(above):
            modes._push_mode(mode)

    def includes(self, step: int) -> bool:
        """Return whether a step up to the last is watched."""
        return True

    def over(self) -> None:
        """Write what was collected, after the last step."""

    def dispatched(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Take note of an operator and call it; return what it gives."""
        raise NotImplementedError

    def whose(self) -> tuple[str, str, tuple[str, int]]:
        """Return (phase, backward node, line) of the operator being dispatched: one of the backward
        pass belongs to the line of its forward."""
        node = torch._C._current_autograd_node()
        if node is not None:
            line = self._lines.get(node._sequence_nr(), ("", 0))
            return "backward", node.name(), line
        frame: Any = sys._getframe(3)
        site = source_line.nearest(frame)
        while frame is not None:
            code = frame.f_code
            steps = code.co_name in ("step", "_optimizer_step_code")
            if steps and "/optim/" in code.co_filename:
                return "optimizer", "", site
            frame = frame.f_back
        if len(self._lines) < MAX_OPERATORS:
            self._lines.setdefault(torch._C._autograd._get_sequence_nr() - 1, site)
        return "forward", "", site


class Operators(Watching):
    """Records the operators of `step` (-1: all before the first); where it is early, those of all
    before it too, for a divergence may come sooner this time.

    `replay` names the one to replay: (operator, which time it was dispatched in the step, how often
    to replay it); None for none.
    """

    def __init__(self, step: int, replay: Any = None, sketch: bool = False) -> None:
        super().__init__(step)
        self.replay = replay
        self.sketch = sketch
        self._counts: dict[str, int] = {}
        # addresses of storages that `empty` gave and that nothing has written yet
        self._unwritten: set[int] = set()

    def includes(self, step: int) -> bool:
        """Return whether this is the step, or it is an early one."""
        return step == self.step or self.step <= _EARLY

    def dispatched(self, function: Any, args: Any, kwargs: Any) -> Any:
        name = str(function)
        current = session.current()
        if (
            name.startswith(dispatch.ASIDE)
            or current.step > self.step
            or not current.live
            or current.at_work()
        ):
            return function(*args, **kwargs)
        is_mutable = dispatch.is_mutable(function)
        tags = getattr(function, "tags", ())
        target = _addresses(args[:1])
        # what memory holds that nothing has written is no input (`uniform_` on `empty`)
        unwritten = is_mutable and target and target <= self._unwritten
        phase, node, (file, line) = self.whose()
        count = self._counts[name] = self._counts.get(name, 0) + 1
        with current.in_hook():
            more: dict[str, Any] = {
                "form": _form((args, kwargs)),
                "device": _device((args, kwargs)),
            }
            inputs = _digests((args[1:] if unwritten else args, kwargs))
            # the generator that a random operator draws from is an input too
            if torch.Tag.nondeterministic_seeded in tags:
                generator = kwargs.get("generator") or torch.default_generator
                inputs += _digests(generator.get_state())
            if self.replay is not None and self.replay[:2] == [name, count]:
                more["distinct"] = _replay(function, args, kwargs, self.replay[2])
        result = function(*args, **kwargs)
        if ".empty" in name or ".new_empty" in name:
            self._unwritten |= _addresses(result)
        elif not dispatch.is_view(function):
            self._unwritten -= _addresses(result) | target
        with current.in_hook():
            outputs = _digests((result, (args, kwargs) if is_mutable else ()))
            if dispatch.gives_unwritten(name):
                outputs = []
            elif self.sketch:
                more |= _sketched(result)
            current.event(
                "operators",
                op=name[:200],
                count=count,
                phase=phase,
                node=node[:200],
                file=file,
                line=line,
                inputs=inputs[:100],
                outputs=outputs[:100],
                simple=torch.Tag.pointwise in tags or dispatch.is_view(function),
                **more,
            )
        return result


def _sketched(result: Any) -> dict[str, Any]:
    """Return the sketch of the first output of a floating type, and the size of one rounding of
    it: half a unit in the last place of its largest element, for each element."""
    for tensor in _tensors(result):
        if tensor.is_floating_point() and tensor.numel() and in_memory(tensor):
            sums = distance.sketch(tensor)
            largest = float(tensor.detach().abs().max())
            if sums is not None and largest:
                unit = math.ldexp(
                    torch.finfo(tensor.dtype).eps, math.frexp(largest)[1] - 2
                )
                return {"sums": sums, "rounding": unit * math.sqrt(tensor.numel())}
    return {}


def _tensors(value: Any) -> list[Any]:
    """Return the tensors among arguments or results."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _device(arguments: Any) -> str:
    """Return the type of the device that the tensors among arguments lie on."""
    devices = {item.device.type for item in _tensors(arguments)}
    return next(iter(sorted(devices - {"cpu"})), "cpu")


def _form(arguments: Any) -> str:
    """Return a digest of arguments but for the elements of tensors: how those lie in memory, and
    the plain values. In another order in memory, equal elements are added in another order."""
    parts = list[object]()
    for leaf in tree_leaves(arguments):
        is_strided = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        with contextlib.suppress(Exception):  # some wrappers have no strides
            leaf = leaf.stride() if is_strided else leaf
        parts.append(leaf if isinstance(leaf, _PLAIN) else type(leaf).__name__)
    content = repr(parts).encode("utf-8", "replace")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _addresses(value: Any) -> set[int]:
    """Return where tensors have their memory, if they have any of their own."""
    addresses = set()
    for item in _tensors(value):
        with contextlib.suppress(RuntimeError), unseen():
            addresses.add(int(item.untyped_storage().data_ptr()))
    return addresses - {0}


def _digests(value: Any) -> list[str]:
    digests = digest_all(_tensors(value))
    return [digests[at : at + 8].hex() for at in range(0, len(digests), 16)]


def _replay(function: Any, args: Any, kwargs: Any, times: int) -> dict[str, int]:
    """Return how many distinct outputs `times` executions on copies of the same inputs gave,
    for each way to run it; 0: it raised."""
    enabled = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    counts = {}
    for name, on, count in (
        ("as-trained", enabled, threads),
        ("one-thread", enabled, 1),
        ("deterministic", True, threads),
        ("default", False, threads),
    ):
        distinct = set()
        torch.set_num_threads(count)
        torch.use_deterministic_algorithms(on, warn_only=warn and on)
        with contextlib.suppress(Exception):
            for _ in range(times):
                copies = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
                result = function(*copies[0], **copies[1])
                written = copies[0] if dispatch.is_mutable(function) else ()
                distinct.add(tuple(_digests((result, written))))
            counts[name] = len(distinct)
        counts.setdefault(name, 0)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(enabled, warn_only=warn)
    return counts


class Calls(Watching):
    """Notes each distinct call of `step`: the operator, its arguments, how often and at which
    lines. If something was compiled before it, nothing: a compiled graph dispatches nothing, and
    would not run under this watch.

    Of the elements of tensors nothing is noted, but of those that may be indices: the smallest, the
    largest, and how many distinct ones (of a mask: how many are true). Races and bounds depend on
    them.
    """

    eager = False

    def __init__(self, step: int) -> None:
        super().__init__(step)
        # (operator, form without elements) -> options, dtype, phase, form
        self._calls: dict[tuple[str, str], tuple[str, str, str, str]] = {}
        self._sites: dict[tuple[str, str], collections.Counter[tuple[str, int]]] = {}

    def includes(self, step: int) -> bool:
        """Return whether this is the step, and nothing was compiled before."""
        utils: Any = sys.modules.get("torch._dynamo.utils")
        compiled = utils is not None and utils.counters["frames"]["total"]
        return step == self.step and not compiled

    def over(self) -> None:
        """Write the calls, the most frequent first."""
        current = session.current()
        counts = {key: sum(sites.values()) for key, sites in self._sites.items()}
        for key in sorted(counts, key=lambda it: -counts[it])[:MAX_CALLS]:
            sites = [site for site, _ in self._sites[key].most_common(10)]
            row = (key[0][:200], *self._calls[key], counts[key], sites)
            current.event("calls", rows=[row])

    def dispatched(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Note a call, unless it is the probe's own or computes nothing."""
        name = str(function)
        current = session.current()
        if (
            current.live
            and not current.at_work()
            and not name.startswith(dispatch.ASIDE)
            and not dispatch.is_view(function)
        ):
            phase, _, site = self.whose()
            with current.in_hook():
                key = name, json.dumps(described((args, kwargs)))
                if key not in self._calls and len(self._calls) < _MOST_KEPT:
                    form = json.dumps(described((args, kwargs), elements=True))
                    if len(form) > MAX_FORM:
                        form = "blake2b:" + hashlib.blake2b(form.encode()).hexdigest()
                    options = dispatch.form(function, args, kwargs)
                    self._calls[key] = options, _dtype((args, kwargs)), phase, form
                    self._sites[key] = collections.Counter()
                if key in self._calls:
                    self._sites[key][site] += 1
        return function(*args, **kwargs)


def _dtype(arguments: Any) -> str:
    """Return the dtype of the first floating-point tensor, else of the first."""
    dtypes = [tensor.dtype for tensor in _tensors(arguments)]
    dtypes.sort(key=lambda it: not (it.is_floating_point or it.is_complex))
    return str(dtypes[0]).replace("torch.", "") if dtypes else ""


class Refused(Watching):
    """Names each operator that torch refuses, up to the end of `step`, with the line of its
    forward. It is then run without the flag: the training goes on, and all of them are named in one
    run."""

    def dispatched(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator, without the flag if torch refuses it."""
        phase, _, (file, line) = self.whose()
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            refusal = re.search(REFUSAL, str(error))
            if refusal is None:
                raise
        place = {"file": file, "line": line}
        session.current().notice("refused", op=refusal[1], phase=phase, **place)
        setter: Any = torch._C._set_deterministic_algorithms
        # the probe notes what the training switches off
        setter = getattr(setter, "__wrapped__", setter)
        setter(False)
        try:
            return function(*args, **kwargs)
        finally:
            setter(True)
