"""The one way in which the probe puts itself between the training and a function that it calls."""

from __future__ import annotations

import functools
from typing import Any, Callable


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Any:
    """Replace `owner.name`, where there is one, by a function that calls `around(original, …)`, and return that function."""
    original = getattr(owner, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)
    return wrapper
