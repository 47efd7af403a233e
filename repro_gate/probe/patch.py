"""Small patches on torch's classes, used by `torch_hooks`: wrapping a method, and losses as they are before a GradScaler scales them."""

from __future__ import annotations

import functools
from typing import Any, Callable


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` by a function that calls `around(original, …)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def remember_unscaled(torch: Any) -> None:
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
