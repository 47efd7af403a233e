"""Claims about the times of a step: the probe's own is no part of them, and nothing waits for the
device before it has to."""

from __future__ import annotations

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


def test_on_the_host_the_probes_own_time_is_taken_out() -> None:
    times = StepTimes(
        on_the_host(1.0),
        on_the_host(1.5),
        [(on_the_host(1.1), on_the_host(1.2)), (on_the_host(1.3), on_the_host(1.35))],
    )
    assert times.ready()
    assert times.fields() == pytest.approx({"ms": 350.0, "probe_ms": 150.0})


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


def test_the_probe_never_takes_more_than_the_step() -> None:
    assert StepTimes(
        on_the_host(1.0), on_the_host(1.1), [(on_the_host(0.0), on_the_host(1.1))]
    ).fields() == pytest.approx({"ms": 0.0, "probe_ms": 100.0})


def test_a_mark_has_an_event_only_where_cuda_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    assert step_time.mark(None).event is None

    class Torch:
        class cuda:  # noqa: N801  as torch calls it
            class Event:
                def __init__(self, enable_timing: bool) -> None:
                    assert enable_timing

                def record(self) -> None:
                    made.append(self)

            @staticmethod
            def is_initialized() -> bool:
                return True

    found = step_time.mark(Torch)
    assert made == [found.event]
