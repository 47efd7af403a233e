"""Reads the loss where the training hands it over: at `backward()`, at `autograd.grad`, and before
a GradScaler scales it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

from ..trace.writer import Later
from .device_digest import fetch
from .digest import bare, begin, describe, in_memory, local
from .manual_steps import BACKWARD, GRAD, leaves_of, unwrapped
from .patch import wrap
from .process import works_for_a_pool


def watch(main: Any) -> None:
    """Put the hooks (`torch_hooks.Hooks`; `main` are the main thread's) between the training and
    autograd, once in each process."""
    compiling = torch.compiler.is_compiling
    # not -1 inside a backward pass: what it calls is part of it
    task = torch._C._current_graph_task_id

    def backward(original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(tensors, "__next__"):
            tensors = tuple(tensors)
        hooks = main.of_thread()
        if task() != -1:
            with contextlib.suppress(Exception):
                hooks.manual.nests(unwrapped(tensors))
            return original(tensors, *args, **kwargs)
        session = hooks.session
        if session.live:
            with session.own_time():
                _before_backward(hooks, unwrapped(tensors))
        elif hooks.manual.by and not hooks.manual.over:
            session.insist()
        result = original(tensors, *args, **kwargs)
        if session.live:
            with session.own_time():
                hooks.manual.left()
        return result

    def grad(
        original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if compiling() or task() != -1:
            return original(outputs, inputs, *args, **kwargs)
        if hasattr(inputs, "__next__"):  # `net.parameters()` can be read once
            inputs = tuple(inputs)
        hooks = main.of_thread()
        left = None
        session = hooks.session
        if session.live:
            with session.own_time():
                graph = args[2] if len(args) > 2 else kwargs.get("create_graph")
                left = _before_grad(hooks, outputs, inputs, bool(graph))
        elif session.stopped and hooks.manual.by == GRAD and not hooks.manual.over:
            session.insist()
        result = original(outputs, inputs, *args, **kwargs)
        if left is not None and session.live:
            with session.own_time(), bare():
                left(unwrapped(result))
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


def _before_backward(hooks: Any, roots: list[Any]) -> None:
    manual = hooks.manual
    leaves = []
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
    manual = hooks.manual
    roots = unwrapped(outputs)
    leaves = unwrapped(inputs)
    are_leaves = all(leaf.is_leaf for leaf in leaves)
    if not (are_leaves and manual.outermost(inputs, create_graph)):
        return None
    if manual.over:
        return functools.partial(manual.record_extra, leaves)
    with bare():
        is_step = manual.by != BACKWARD and not works_for_a_pool()
        if not is_step or manual.of_the_input(leaves, roots):
            return None
        manual.enters(GRAD, leaves)
    _record(hooks, roots)
    return manual.left


def _record(hooks: Any, roots: list[Any]) -> None:
    """Record what stands before a gradient is taken of `roots`: the initial state if this is the
    first, generator states, the loss as the training knows it (before scaling)."""
    session = hooks.session
    hooks.initial_state()
    if session.live:
        session.trains()
        with session.own_time(), bare():
            losses = []
            for root in roots:
                is_scalar = root.numel() == 1 and root.is_floating_point()
                if is_scalar and in_memory(root):
                    losses.append(getattr(root, "_repro_gate_loss", root).detach())
            if session.wants():
                session.rng()
            if losses:
                rows = [
                    (
                        f"loss.{index}" if losses[1:] else "loss",
                        describe("", item)[1],
                        (),
                    )
                    for index, item in enumerate(losses)
                ]
                session.block("loss", tuple(rows), Losses(losses))


class Losses(Later):
    """The digests of losses, and their values, which may still be on their way from a device."""

    def __init__(self, losses: list[Any]) -> None:
        self._digests = begin(losses)
        values = [local(item).to(torch.float64).reshape(()) for item in losses]
        if len({item.device for item in values}) > 1:
            values = [item.cpu() for item in values]
        self._values = fetch(torch.stack(values))

    def ready(self) -> bool:
        return self._digests.ready() and self._values.ready()

    def fields(self) -> dict[str, Any]:
        values = [value.hex() for value in self._values.values().tolist()]
        return {**self._digests.fields(), "values": values}
