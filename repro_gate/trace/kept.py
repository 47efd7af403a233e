"""Keeps what the probe uses of the standard library as it was before the training's first line:
what the training puts in its place later (a mock of `time.time`, freezegun, a daemon's own
`os.write`) does not reach the probe, and the probe does not use its answers up."""

from __future__ import annotations

import types
from typing import Any


def kept(module: Any) -> types.SimpleNamespace:
    """Return the module's names as they are now, in an object that nobody finds by looking through
    `sys.modules`, as freezegun does."""
    return types.SimpleNamespace(**vars(module))
