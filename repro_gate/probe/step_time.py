"""How long a step took, and the probe in it: by the host's clock, and where CUDA is used by events
among the device's work.

Nothing waits for the device: the times of a step are read when the device has come to its end, as
`writer.Later`.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Tuple

from ..trace.kept import kept
from ..trace.writer import Later
from . import facts

_TIME = kept(time)


class Mark(NamedTuple):
    """A moment: seconds of `time.perf_counter`, and the event at the end of what the training has
    queued by then (None without CUDA)."""

    host: float
    event: Any


def mark(torch: Any) -> Mark:
    """This moment."""
    event = None
    if facts.started(torch):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    return Mark(_TIME.perf_counter(), event)


class StepTimes(Later):
    """The times of one step, between two marks: `ms` without what the probe took of it, in the
    pairs of marks `own`, and `probe_ms`."""

    def __init__(self, began: Mark, ended: Mark, own: List[Tuple[Mark, Mark]]) -> None:
        self._began, self._ended, self._own = began, ended, own

    def ready(self) -> bool:
        """Whether the device has come to the end of the step."""
        return self._ended.event is None or bool(self._ended.event.query())

    def fields(self) -> Dict[str, float]:
        elapsed = _milliseconds(self._began, self._ended)
        own = min(sum(_milliseconds(*pair) for pair in self._own), elapsed)
        return {"ms": round(elapsed - own, 6), "probe_ms": round(own, 6)}


def _milliseconds(first: Mark, second: Mark) -> float:
    """From one mark to another; by the host's clock where an event is missing, as before CUDA was
    started."""
    if first.event is None or second.event is None:
        return (second.host - first.host) * 1e3
    second.event.synchronize()
    return max(0.0, float(first.event.elapsed_time(second.event)))
