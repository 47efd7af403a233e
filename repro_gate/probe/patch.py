"""The ways into torch: its optimizers, autograd, DataLoaders and GradScaler call `torch_hooks.Hooks` from here on."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable

from . import seeds
from .by_hand import plain


def attach(hooks: Any) -> None:
    """Put the hooks into torch, once in each process."""
    from torch.optim import optimizer as optim

    kind = type(hooks)
    kind.before_step._torchdynamo_disable = kind.after_step._torchdynamo_disable = True
    optim.register_optimizer_step_pre_hook(hooks.before_step)
    optim.register_optimizer_step_post_hook(hooks.after_step)
    wrap(optim.Optimizer, "__init__", hooks.optimizer_made)
    _wrap_backward(hooks)
    _wrap_loader(hooks)
    _remember_unscaled(hooks.torch)


def _wrap_backward(hooks: Any) -> None:
    torch, autograd = hooks.torch, hooks.torch.autograd
    original, original_grad = autograd.backward, autograd.grad
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    task = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # not -1 inside a backward pass: what it calls is part of it

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(tensors, "__next__"):
            tensors = tuple(tensors)
        if task() != -1:
            with contextlib.suppress(Exception):
                hooks.by_hand.nests(plain(torch, tensors))
            return original(tensors, *args, **kwargs)
        if hooks.session.live:
            hooks.backward(tensors)
        elif hooks.by_hand.by and not hooks.by_hand.over:
            hooks.session.insist()
        result = original(tensors, *args, **kwargs)
        hooks.by_hand.leaves()
        return result

    @functools.wraps(original_grad)
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or task() != -1:
            return original_grad(outputs, inputs, *args, **kwargs)
        if hasattr(inputs, "__next__"):  # `net.parameters()` can be read once
            inputs = tuple(inputs)
        return hooks.grad(original_grad, outputs, inputs, args, kwargs)

    autograd.backward, autograd.grad = backward, grad


def _wrap_loader(hooks: Any) -> None:
    from torch.utils.data import DataLoader, dataloader

    def following(original: Callable[..., Any], iterator: Any) -> Any:
        value = original(iterator)
        if hooks.session.live:
            hooks.batch(iterator, value)
        return value

    def starting(original: Callable[..., Any], loader: Any) -> Any:
        session = hooks.session
        if session.live and session.step >= 0:
            with session.own_time():
                session.block("rng", *seeds.rng_digests())
        iterator = original(loader)
        hooks.loaders.started(loader, iterator)
        return iterator

    wrap(dataloader._BaseDataLoaderIter, "__next__", following)
    wrap(DataLoader, "__iter__", starting)


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` by a function that calls `around(original, …)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def _remember_unscaled(torch: Any) -> None:
    """`GradScaler.scale(loss)` remembers the loss it was given, so that a loss is recorded as a person knows it."""
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        return

    def scale(original: Callable[..., Any], self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._repro_gate_loss = outputs.detach()
        return scaled

    wrap(scaler, "scale", scale)


def loss_of(root: Any) -> Any:
    """The loss as a person knows it: what was scaled, if a GradScaler scaled it, else the root of the backward pass itself."""
    return getattr(root, "_repro_gate_loss", root).detach()
