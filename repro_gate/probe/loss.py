"""Reads the loss where the training hands it over: at `backward()`, at `autograd.grad`, and before
a GradScaler scales it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Dict, List

from ..trace.writer import Later
from .device_digest import fetch
from .digest import bare, begin, describe, in_memory, local
from .manual_steps import BACKWARD, GRAD, leaves_of, unwrapped
from .patch import wrap
from .process import works_for_a_pool


def watch(main: Any) -> None:
    """Put the hooks (`torch_hooks.Hooks`; `main` are the main thread's) between the training and
    autograd, once in each process."""
    torch = main.torch
    compiling = torch.compiler.is_compiling
    # not -1 inside a backward pass: what it calls is part of it
    task = torch._C._current_graph_task_id

    def backward(original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(tensors, "__next__"):
            tensors = tuple(tensors)
        hooks = main.of_thread()
        if task() != -1:
            with contextlib.suppress(Exception):
                hooks.manual.nests(unwrapped(torch, tensors))
            return original(tensors, *args, **kwargs)
        if hooks.session.live:
            with hooks.session.own_time():
                _before_backward(hooks, unwrapped(torch, tensors))
        elif hooks.manual.by and not hooks.manual.over:
            hooks.session.insist()
        result = original(tensors, *args, **kwargs)
        if hooks.session.live:
            with hooks.session.own_time():
                hooks.manual.left()
        return result

    def grad(
        original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if compiling() or task() != -1:
            return original(outputs, inputs, *args, **kwargs)
        if hasattr(inputs, "__next__"):  # `net.parameters()` can be read once
            inputs = tuple(inputs)
        hooks, left = main.of_thread(), None
        session = hooks.session
        if session.live:
            with session.own_time():
                create_graph = bool(
                    args[2] if len(args) > 2 else kwargs.get("create_graph")
                )
                left = _before_grad(hooks, outputs, inputs, create_graph)
        elif session.stopped and hooks.manual.by == GRAD and not hooks.manual.over:
            session.insist()
        result = original(outputs, inputs, *args, **kwargs)
        if left is not None and session.live:
            with session.own_time(), bare(torch):
                left(unwrapped(torch, result))
        return result

    def scale(original: Any, scaler: Any, outputs: Any) -> Any:
        scaled = original(scaler, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._repro_gate_loss = outputs.detach()
        return scaled

    for name, around in (("backward", backward), ("grad", grad)):
        # a graph that is being compiled may take gradients
        del wrap(torch.autograd, name, around)._torchdynamo_disable
    wrap(torch.amp.GradScaler, "scale", scale)


def _before_backward(hooks: Any, roots: List[Any]) -> None:
    manual, leaves = hooks.manual, []
    if not manual.over:
        if works_for_a_pool():
            return
        leaves = list(leaves_of(roots))
    manual.enters(BACKWARD, leaves)
    _record(hooks, roots)
    manual.uncompared(roots)


def _before_grad(hooks: Any, outputs: Any, inputs: Any, create_graph: bool) -> Any:
    """Record what goes into `autograd.grad`, which torch.func's transforms call too: it is a step
    if nothing else is one. Return what records the gradients that come out; None: nothing does."""
    torch, manual = hooks.torch, hooks.manual
    roots, leaves = unwrapped(torch, outputs), unwrapped(torch, inputs)
    if not all(leaf.is_leaf for leaf in leaves) or not manual.outermost(
        inputs, create_graph
    ):
        return None
    if manual.over:
        return functools.partial(manual.record_extra, leaves)
    with bare(torch):
        if (
            manual.by == BACKWARD
            or works_for_a_pool()
            or manual.of_the_input(leaves, roots)
        ):
            return None
        manual.enters(GRAD, leaves)
    _record(hooks, roots)
    return manual.left


def _record(hooks: Any, roots: List[Any]) -> None:
    """Record what stands before a gradient is taken of `roots`: the initial state if this is the
    first, generator states, the loss as the training knows it (before scaling)."""
    session = hooks.session
    hooks.initial_state()
    if session.live:
        session.trains()
        with session.own_time(), bare(hooks.torch):
            losses = []
            for root in roots:
                is_scalar = root.numel() == 1 and root.is_floating_point()
                if is_scalar and in_memory(hooks.torch, root):
                    losses.append(getattr(root, "_repro_gate_loss", root).detach())
            if session.wants():
                session.rng()
            if losses:
                names = ["loss.%d" % index for index in range(len(losses))]
                if len(losses) == 1:
                    names = ["loss"]
                rows = [
                    (name, describe("", item)[1], ())
                    for name, item in zip(names, losses)
                ]
                session.block("loss", tuple(rows), Losses(hooks.torch, losses))


class Losses(Later):
    """The digests of losses, and their values, which may still be on their way from a device."""

    def __init__(self, torch: Any, losses: List[Any]) -> None:
        self._digests = begin(torch, losses)
        values = [local(item).to(torch.float64).reshape(()) for item in losses]
        alike = len({item.device for item in values}) == 1
        values = values if alike else [item.cpu() for item in values]
        self._values, self._event = fetch(torch, torch.stack(values))

    def ready(self) -> bool:
        return self._digests.ready() and (
            self._event is None or bool(self._event.query())
        )

    def fields(self) -> Dict[str, Any]:
        if self._event is not None:
            self._event.synchronize()
        values = [value.hex() for value in self._values.tolist()]
        return {**self._digests.fields(), "values": values}
