"""How long a step took, and the probe in it: by the host's clock, and where the parameters lie on
GPUs by events among the work of each.

Nothing waits for a device: the times of a step are read when all devices have come to its end, as
`writer.Later`. The device that took longest counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import facts
from .shared import PROCESS


class Mark(NamedTuple):
    """A moment: seconds of `time.perf_counter`, and for each GPU the event at the end of what the
    training has queued there by then."""

    host: float
    events: dict[int | None, Any]


def mark(devices: Iterable[int]) -> Mark:
    """Return this moment, on these GPUs; on none while a CUDA graph is captured."""
    events: dict[int | None, Any] = {}
    if devices and not facts.capturing():
        cuda = PROCESS.torch.cuda
        for device in devices:
            events[device] = cuda.Event(enable_timing=True)
            events[device].record(cuda.current_stream(device))
    return Mark(time.perf_counter(), events)


class StepTimes(NamedTuple):
    """The times of one step, between two marks: `ms` without what the probe took of it, in the
    pairs of marks `own`, and `probe_ms`."""

    began: Mark
    ended: Mark
    own: list[tuple[Mark, Mark]]

    def ready(self) -> bool:
        """Return whether all devices have come to the end of the step."""
        return all(event.query() for event in self.ended.events.values())

    def fields(self) -> dict[str, float]:
        return self._longest(self.ended.events or [None])

    def without_device(self) -> dict[str, float]:
        return self._longest([None])

    def _longest(self, devices: Iterable[int | None]) -> dict[str, float]:
        """Return the times on the device that took longest; None is the host."""
        times = []
        for device in devices:
            elapsed = _milliseconds(device, self.began, self.ended)
            own = min(elapsed, sum(_milliseconds(device, *pair) for pair in self.own))
            times.append((elapsed - own, own))
        ms, own = max(times)
        return {"ms": round(ms, 6), "probe_ms": round(own, 6)}


class Clock:
    """Times the steps of one session, and keeps the time and memory of the probe apart."""

    def __init__(self) -> None:
        # GPUs on which the parameters lie; those of them whose memory was read in this step
        self.devices: list[int] = []
        self._measured: list[int] = []
        self._peak = 0  # bytes; 0 until it is read
        self.begin_step()

    def mark(self) -> Mark:
        """Return this moment on the devices of the parameters."""
        return mark(self.devices)

    def begin_step(self) -> None:
        """Begin a step; the rest of the hook in progress is part of it."""
        self.read_peak()
        facts.reset_peak(self._measured)  # what the digests held is not the training's
        self._peak = 0
        # when the step in progress began; when the probe was entered
        self.step = self.entered = self.mark()
        self._own: list[tuple[Mark, Mark]] = []  # since then, what the probe took

    def read_peak(self) -> None:
        """Read the peak memory of the step, once: before the digests at its end add to it."""
        if not self._peak:
            self._measured = self.devices
            self._peak = facts.peak_bytes(self._measured)

    def leave(self) -> None:
        """Count for the training again, and since `entered` for the probe."""
        self._own.append((self.entered, self.mark()))

    def end_step(self) -> tuple[StepTimes, int]:
        """Return the times of the step and its peak memory in bytes."""
        self.read_peak()
        now = self.mark()
        own = [*self._own, (self.entered, now)]
        return StepTimes(self.step, now, own), self._peak


def _milliseconds(device: int | None, first: Mark, second: Mark) -> float:
    """Return the time from one mark to another on a device; by the host's clock where an event is
    missing, as before its parameters were known."""
    before, after = first.events.get(device), second.events.get(device)
    if before is None or after is None:
        return (second.host - first.host) * 1e3
    after.synchronize()
    return max(0.0, float(before.elapsed_time(after)))
