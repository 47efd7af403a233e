"""The configurations that `@triton.autotune` chooses by timing them: kernels with other block sizes
add in another order.

Watched, a use is a choice, at the line that called the kernel. Pinned, all configurations that can
run take the same time, and so the first of them is chosen. Out of sight: choices of Inductor and of
libraries in C++, which the flags of the deterministic arm turn off.
"""

from __future__ import annotations

import contextlib
from typing import Any

from .. import imports, source_line
from .use import calling_frame, is_pinned, note

NAME = "autotune"


def install() -> None:
    """Wrap Triton's autotuner once it is imported."""
    module = "triton.runtime.autotuner"
    imports.wrap_later(module, "Autotuner.run", _ran)
    imports.wrap_later(module, "Autotuner._bench", _timed)


def _ran(original: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel, and note the configuration where it was chosen now."""
    known = len(tuner.cache)
    result = original(tuner, *args, **kwargs)
    with contextlib.suppress(Exception):
        if len(tuner.cache) > known:
            key, config = list(tuner.cache.items())[-1]
            kernel = tuner.base_fn.__name__
            sizes = [part for part in key if isinstance(part, (int, float, str))]
            call = f"{kernel}({config})"
            note(NAME, f"{kernel} for {sizes}", call, call=call, direct=True)
    return result


def _timed(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Time a configuration; pinned, it takes no time if it can run."""
    times = original(*args, **kwargs)
    if "inf" in repr(times) or not is_pinned(
        NAME, source_line.nearest(calling_frame())
    ):
        return times
    return [0.0] if isinstance(times, list) else 0.0
