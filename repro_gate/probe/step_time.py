"""How long a step took, and the probe in it: by the host's clock, and where CUDA is used by events
among the device's work.

Nothing waits for the device: the times of a step are read when the device has come to its end, as
`writer.Later`.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from . import facts
from .shared import PROCESS


class Mark(NamedTuple):
    """A moment: seconds of `time.perf_counter`, and the event at the end of what the training has
    queued by then (None without CUDA)."""

    host: float
    event: Any


def mark() -> Mark:
    """Return this moment."""
    event = None
    if facts.started():
        event = PROCESS.torch.cuda.Event(enable_timing=True)
        event.record()
    return Mark(time.perf_counter(), event)


class StepTimes(NamedTuple):
    """The times of one step, between two marks: `ms` without what the probe took of it, in the
    pairs of marks `own`, and `probe_ms`."""

    began: Mark
    ended: Mark
    own: list[tuple[Mark, Mark]]

    def ready(self) -> bool:
        """Return whether the device has come to the end of the step."""
        return self.ended.event is None or bool(self.ended.event.query())

    def fields(self) -> dict[str, float]:
        elapsed = _milliseconds(self.began, self.ended)
        own = sum(_milliseconds(*pair) for pair in self.own)
        own = min(own, elapsed)
        return {"ms": round(elapsed - own, 6), "probe_ms": round(own, 6)}


class Clock:
    """Times the steps of one session, and keeps the time and memory of the probe apart."""

    def __init__(self) -> None:
        self._peak = 0  # bytes, since the last step
        self.begin_step()

    def begin_step(self) -> None:
        """Begin a step; the rest of the hook in progress is part of it."""
        # when the step in progress began; when the probe was entered
        self.step = self._entered = mark()
        self._own: list[tuple[Mark, Mark]] = []  # since then, what the probe took

    def enter(self, began: Mark) -> None:
        """Count from here on, and since `began`, for the probe."""
        self._entered = began
        self._peak = max(self._peak, facts.peak_bytes())

    def leave(self) -> None:
        """Count for the training again."""
        facts.reset_peak()  # what the digests held is not the training's
        self._own.append((self._entered, mark()))

    def end_step(self) -> tuple[StepTimes, int]:
        """Return the times of the step and its peak memory in bytes."""
        now = mark()
        peak = self._peak
        self._peak = 0
        own = [*self._own, (self._entered, now)]
        return StepTimes(self.step, now, own), peak


def _milliseconds(first: Mark, second: Mark) -> float:
    """Return the time from one mark to another; by the host's clock where an event is missing, as
    before CUDA was started."""
    if first.event is None or second.event is None:
        return (second.host - first.host) * 1e3
    second.event.synchronize()
    return max(0.0, float(first.event.elapsed_time(second.event)))
