"""Repro Gate: a pull-request gate for reproducible training.

`record` and `step` let a training script that never calls a torch optimizer say what to compare;
outside the gate they do nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from ._version import __version__

__all__ = ["__version__", "record", "step"]


def record(name: str, value: Any, kind: str | None = None) -> None:
    """Record `value` (a number, text, bytes, array, tensor or a nesting of these) under `name` in
    the step in progress.

    `kind` is `rng`, `batch`, `buffer`, `loss`, `gradient`, `parameter` or `optimizer`; left out, a
    single number is a loss and everything else a parameter. Does nothing outside the gate. Raises
    ValueError inside it where `kind` is none of these.
    """
    if "_repro_gate" in sys.modules:
        from _repro_gate.probe import sdk

        sdk.record(name, value, kind)


def step() -> None:
    """Close the step in progress. Does nothing outside the gate."""
    if "_repro_gate" in sys.modules:
        from _repro_gate.probe import sdk

        sdk.step()
