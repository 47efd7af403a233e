"""Claims about the times of a step: the probe's own is no part of them, and nothing waits for the
device before it has to."""

from __future__ import annotations

import types
from typing import Any

import pytest

from repro_gate.probe import step_time
from repro_gate.probe.step_time import Mark, StepTimes


class Event:
    """As `torch.cuda.Event`: the device passes it at `at` milliseconds of its own clock; `passed`
    once the test lets it."""

    def __init__(self, at: float, passed: bool = True) -> None:
        self.at, self.passed, self.waited = at, passed, False

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


def on_the_host(seconds: float) -> Mark:
    return Mark(seconds, None)


@pytest.mark.parametrize(
    ("end", "own", "ms", "probe_ms"),
    [
        (1.5, [(1.1, 1.2), (1.3, 1.35)], 350.0, 150.0),
        (1.1, [(0.0, 1.1)], 0.0, 100.0),  # the probe never takes more than the step
    ],
)
def test_on_the_host_the_probes_own_time_is_taken_out(
    end: float, own: list[tuple[float, float]], ms: float, probe_ms: float
) -> None:
    marks = [(on_the_host(first), on_the_host(last)) for first, last in own]
    times = StepTimes(on_the_host(1.0), on_the_host(end), marks)
    assert times.ready() and times.fields() == pytest.approx({"ms": ms, "probe_ms": probe_ms})


def test_where_a_device_works_its_clock_counts_and_not_the_hosts() -> None:
    """The host queues a step in a millisecond; the device takes twenty for it, of which two are
    digests."""
    end = Event(120.0, passed=False)
    times = StepTimes(
        Mark(1.0, Event(100.0)),
        Mark(1.001, end),
        [(Mark(1.0005, Event(115.0)), Mark(1.0006, Event(117.0)))],
    )
    assert not times.ready()
    end.passed = True
    assert times.ready()
    assert times.fields() == pytest.approx({"ms": 18.0, "probe_ms": 2.0})
    assert end.waited


def test_a_step_in_which_cuda_was_started_is_timed_by_the_host() -> None:
    times = StepTimes(
        on_the_host(1.0),
        Mark(1.2, Event(5.0)),
        [(on_the_host(1.0), on_the_host(1.05)), (Mark(1.1, Event(1.0)), Mark(1.11, Event(4.0)))],
    )
    assert times.fields() == pytest.approx({"ms": 147.0, "probe_ms": 53.0})


def test_a_mark_has_an_event_only_where_cuda_is_started() -> None:
    made: list[Any] = []
    assert step_time.mark(None).event is None

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            made.append(self)

    cuda = types.SimpleNamespace(Event=Event, is_initialized=lambda: True)
    assert made == [] and step_time.mark(types.SimpleNamespace(cuda=cuda)).event is made[0]
