"""Reads the loss where the training hands it over: at `backward()`, at `autograd.grad`, and before
a GradScaler scales it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable

import torch

from ..trace.writer import Later
from .device_digest import fetch
from .digest import bare, begin, describe, in_memory, local
from .manual_steps import BACKWARD, GRAD, leaves_of, unwrapped
from .patch import wrap
from .process import works_for_a_pool
from .shared import unseen


def watch(main: Any) -> None:
    """Put the hooks (`torch_hooks.Hooks`; `main` are the main thread's) between the training and
    autograd, once in each process."""
    compiling = torch.compiler.is_compiling
    task = torch._C._current_graph_task_id

    def around(before: Callable[..., Any]) -> Callable[..., Any]:
        def call(original: Any, *args: Any, **kwargs: Any) -> Any:
            if before is _before_grad and (compiling() or task() != -1):
                return original(*args, **kwargs)
            args = tuple(map(_readable_twice, args))
            kwargs = {name: _readable_twice(item) for name, item in kwargs.items()}
            hooks = main.of_thread()
            # inside a backward pass, what it calls is part of it
            if task() != -1:
                with contextlib.suppress(Exception), unseen():
                    hooks.manual.nests(unwrapped(args[0]))
                return original(*args, **kwargs)
            session = hooks.session
            after = None
            if session.live:
                with session.in_hook():
                    after = before(hooks, *args, **kwargs)
            elif hooks.manual.by and not hooks.manual.over:
                session.insist()
            result = original(*args, **kwargs)
            if after is not None and session.live:
                with session.in_hook(), bare():
                    after(unwrapped(result))
            return result

        return call

    def scale(original: Any, scaler: Any, outputs: Any) -> Any:
        scaled = original(scaler, outputs)
        tensors = main.of_thread().tensors
        tensors.scaler = scaler
        if issubclass(type(scaled), torch.Tensor) and scaled is not outputs:
            with unseen():
                tensors.unscaled.add(scaled, _detached(outputs))
        return scaled

    for name, before in (("backward", _before_backward), ("grad", _before_grad)):
        # a graph that is being compiled may take gradients
        del wrap(torch.autograd, name, around(before))._torchdynamo_disable
    wrap(torch.amp.GradScaler, "scale", scale)


def _readable_twice(argument: Any) -> Any:
    """Return the argument; of an iterator (`net.parameters()`), what it gives."""
    return tuple(argument) if hasattr(type(argument), "__next__") else argument


def _before_backward(hooks: Any, tensors: Any, *_: Any, **__: Any) -> Any:
    """Record what goes into `backward()`; return what records the gradients that it leaves."""
    manual = hooks.manual
    roots = unwrapped(tensors)
    if not manual.over and works_for_a_pool():
        return None
    manual.enters(BACKWARD, [] if manual.over else list(leaves_of(roots)))
    _record(hooks, roots)
    manual.uncompared(roots)
    return manual.left


def _before_grad(
    hooks: Any,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    *_: Any,
    **__: Any,
) -> Any:
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
        with session.in_hook(), bare():
            losses = []
            for root in filter(in_memory, roots):
                own = hooks.tensors.unscaled.get(root)
                own = _detached(root) if own is None else own
                if own.dtype.is_floating_point and own.shape.numel() == 1:
                    losses.append(own)
            if session.wants():
                session.rng()
            if losses:
                numbered = [f"loss.{index}" for index in range(len(losses))]
                labels = numbered if losses[1:] else ["loss"]
                session.block("loss", [*map(describe, labels, losses)], Losses(losses))


def _detached(tensor: Any) -> Any:
    return torch._C.TensorBase.detach(local(tensor))


class Losses(Later):
    """The digests of losses, and their values, which may still be on their way from a device."""

    def __init__(self, losses: list[Any]) -> None:
        self._digests = begin(losses)
        of = torch._C.TensorBase
        values = [of.reshape(of.to(item, torch.float64), ()) for item in losses]
        if len({item.device for item in values}) > 1:
            values = [of.cpu(item) for item in values]
        stacked = torch.stack(values)
        with torch.cuda.device_of(stacked):
            self._values = fetch(stacked)

    def ready(self) -> bool:
        return self._digests.ready() and self._values.ready()

    def fields(self) -> dict[str, Any]:
        values = torch._C.TensorBase.tolist(self._values.values())
        values = [value.hex() for value in values]
        return {**self._digests.fields(), "values": values}
