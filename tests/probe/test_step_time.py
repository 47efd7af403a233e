"""Claims about the times of a step: the probe's own is no part of them."""

from __future__ import annotations

import types

import pytest

from repro_gate.probe import step_time
from repro_gate.probe.shared import PROCESS
from repro_gate.probe.step_time import Mark, StepTimes


class Event:
    """As `torch.cuda.Event`: the device passes it at `at` milliseconds of its own clock; `passed`
    once the test lets it."""

    def __init__(self, at: float = 0.0, passed: bool = True, enable_timing: bool = True) -> None:
        self.at, self.passed, self.waited, self.timed = at, passed, False, enable_timing
        self.record = self.query = lambda: self.passed

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


def on_the_host(seconds: float) -> Mark:
    return Mark(seconds, None)


def test_the_probes_own_time_is_taken_out_of_a_step() -> None:
    own = [(1.1, 1.2), (1.3, 1.35)]
    marks = [(on_the_host(first), on_the_host(last)) for first, last in own]
    times = StepTimes(on_the_host(1.0), on_the_host(1.5), marks)
    assert times.ready() and times.fields() == pytest.approx({"ms": 350.0, "probe_ms": 150.0})
    # the probe never takes more than the step
    more = StepTimes(on_the_host(1.0), on_the_host(1.1), [(on_the_host(0.0), on_the_host(1.1))])
    assert more.fields() == pytest.approx({"ms": 0.0, "probe_ms": 100.0})


def test_where_a_device_works_its_clock_counts_and_not_the_hosts() -> None:
    """The host queues a step in a millisecond; the device takes twenty for it, of which two are
    digests."""
    end = Event(120.0, passed=False)
    own = (Mark(1.0005, Event(115.0)), Mark(1.0006, Event(117.0)))
    times = StepTimes(Mark(1.0, Event(100.0)), Mark(1.001, end), [own])
    assert not times.ready()
    end.passed = True
    assert times.ready() and times.fields() == pytest.approx({"ms": 18.0, "probe_ms": 2.0})
    assert end.waited
    # of the step in which CUDA was started, the beginning has no event
    own = (Mark(1.1, Event(1.0)), Mark(1.11, Event(4.0)))
    first = StepTimes(on_the_host(1.0), Mark(1.2, Event(5.0)), [own])
    assert first.fields() == pytest.approx({"ms": 197.0, "probe_ms": 3.0})


def test_a_mark_has_an_event_only_where_cuda_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_time.mark().event is None
    cuda = types.SimpleNamespace(Event=Event, is_initialized=lambda: True)
    monkeypatch.setattr(PROCESS, "torch", types.SimpleNamespace(cuda=cuda))
    assert step_time.mark().event.timed
