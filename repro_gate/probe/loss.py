"""Reads the loss where the training hands it over: at `backward()`, at `autograd.grad`, and before
a GradScaler scales it."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List

from ..trace.writer import Later
from .device_digest import fetch
from .digest import bare, begin, describe, in_memory, local
from .manual_steps import BACKWARD, GRAD, leaves_of, unwrapped
from .patch import wrap


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
        if task() != -1:
            with contextlib.suppress(Exception):
                main.of_thread().manual.nests(unwrapped(torch, tensors))
            return original(tensors, *args, **kwargs)
        hooks = main.of_thread()
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

    def grad(original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or task() != -1:
            return original(outputs, inputs, *args, **kwargs)
        if hasattr(inputs, "__next__"):  # `net.parameters()` can be read once
            inputs = tuple(inputs)
        return _grad(main.of_thread(), original, outputs, inputs, *args, **kwargs)

    def scale(original: Any, scaler: Any, outputs: Any) -> Any:
        scaled = original(scaler, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._repro_gate_loss = outputs.detach()
        return scaled

    for name, around in (("backward", backward), ("grad", grad)):
        del wrap(
            torch.autograd, name, around
        )._torchdynamo_disable  # a graph that is being compiled may take gradients
    wrap(torch.amp.GradScaler, "scale", scale)


def _before_backward(hooks: Any, roots: List[Any]) -> None:
    manual, leaves = hooks.manual, []
    if not manual.over:
        if manual.in_a_pool():
            return
        leaves = list(leaves_of(roots))
    manual.enters(BACKWARD, leaves)
    _record(hooks, roots)
    manual.uncompared(roots)


def _grad(hooks: Any, original: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`autograd.grad`, which torch.func's transforms call too: a step where nothing else is one,
    else recorded beside the steps."""
    torch, session, manual = hooks.torch, hooks.session, hooks.manual
    mine = steps = False
    taken: List[Any] = []
    if session.live:
        with session.own_time():
            roots, taken = unwrapped(torch, outputs), unwrapped(torch, inputs)
            create_graph = bool(args[2] if len(args) > 2 else kwargs.get("create_graph"))
            mine = all(item.is_leaf for item in taken) and manual.outermost(inputs, create_graph)
            with bare(torch):
                mine = mine and (
                    manual.over or not (manual.in_a_pool() or manual.of_the_input(taken, roots))
                )
                steps = mine and not manual.over and manual.by != BACKWARD
                if steps:
                    manual.enters(GRAD, taken)
            if steps:
                _record(hooks, roots)
    elif session.stopped and manual.by == GRAD and not manual.over:
        session.insist()
    result = original(outputs, inputs, *args, **kwargs)
    if mine and session.live:
        with session.own_time(), bare(torch):
            grads = unwrapped(torch, result)
            manual.left(grads) if steps else manual.beside(taken, grads)
    return result


def _record(hooks: Any, roots: List[Any]) -> None:
    """A gradient is about to be taken of `roots`: the initial state where this is the first,
    generator states, the loss as the training knows it (before scaling)."""
    session = hooks.session
    hooks.initial_state()
    if session.live:
        session.trains()
        with session.own_time(), bare(hooks.torch):
            scalars = [
                root
                for root in roots
                if root.numel() == 1 and root.is_floating_point() and in_memory(hooks.torch, root)
            ]
            losses = [getattr(root, "_repro_gate_loss", root).detach() for root in scalars]
            if session.wants():
                session.rng()
            if losses:
                rows = tuple(
                    ("loss.%d" % index if losses[1:] else "loss", describe("", item)[1], ())
                    for index, item in enumerate(losses)
                )
                session.block("loss", rows, Losses(hooks.torch, losses))


class Losses(Later):
    """The digests of losses, and their values, which may still be on their way from a device."""

    def __init__(self, torch: Any, losses: List[Any]) -> None:
        self._digests = begin(torch, losses)
        values = [local(item).to(torch.float64).reshape(()) for item in losses]
        alike = len({item.device for item in values}) == 1
        self._values, self._event = fetch(
            torch, torch.stack(values if alike else [item.cpu() for item in values])
        )

    def ready(self) -> bool:
        return self._digests.ready() and (self._event is None or bool(self._event.query()))

    def fields(self) -> Dict[str, Any]:
        if self._event is not None:
            self._event.synchronize()
        return {
            **self._digests.fields(),
            "values": [value.hex() for value in self._values.tolist()],
        }
