"""Claims about the times of a step: the probe's own is no part of them, and those of the devices on
which the parameters lie count."""

from __future__ import annotations

import pytest

from repro_gate.probe import facts, step_time
from repro_gate.probe.shared import PROCESS
from repro_gate.probe.step_time import Clock, Mark, StepTimes
from tests.support.cuda import Cuda, Stream, in_torch


def on_the_host(seconds: float) -> Mark:
    return Mark(seconds, {})


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Two GPUs, of which the first is the current one and the second holds the parameters."""
    found = Cuda()
    monkeypatch.setattr(PROCESS, "torch", in_torch(found))
    monkeypatch.setattr(facts, "_IN_USE", [])
    monkeypatch.setattr(facts, "_PEAKS", {})
    found.allocate(1, 100)
    return found


def clock_on(*devices: int) -> Clock:
    clock = Clock()
    clock.devices = list(devices)
    clock.begin_step()
    return clock


def test_the_probes_own_time_is_taken_out_of_a_step() -> None:
    own = [(1.1, 1.2), (1.3, 1.35)]
    marks = [(on_the_host(first), on_the_host(last)) for first, last in own]
    times = StepTimes(on_the_host(1.0), on_the_host(1.5), marks)
    assert times.ready() and times.fields() == pytest.approx({"ms": 350.0, "probe_ms": 150.0})
    # the probe never takes more than the step
    more = StepTimes(on_the_host(1.0), on_the_host(1.1), [(on_the_host(0.0), on_the_host(1.1))])
    assert more.fields() == pytest.approx({"ms": 0.0, "probe_ms": 100.0})


def test_where_a_device_works_its_clock_counts_and_not_the_hosts(cuda: Cuda) -> None:
    """The host queues a step in no time; the device takes twenty milliseconds for it, of which two
    are digests. The current device is another, and nothing is done on it."""
    clock, stream = clock_on(1), cuda.current_stream(1)
    stream.work(18)
    clock.entered = clock.mark()
    stream.work(2)
    times, _ = clock.end_step()
    assert not times.ready()
    cuda.finish()
    assert times.ready() and times.fields() == pytest.approx({"ms": 18.0, "probe_ms": 2.0})
    assert cuda.contexts == {1}
    # what a device that failed was to say
    known = times.without_device()
    assert known["ms"] + known["probe_ms"] < 1_000 and min(known.values()) >= 0


def test_of_several_devices_the_slowest_counts(cuda: Cuda) -> None:
    clock = clock_on(0, 1)
    cuda.current_stream(0).work(30)
    clock.entered = clock.mark()
    cuda.current_stream(1).work(50)
    clock.leave()
    cuda.current_stream(1).work(40)
    clock.entered = clock.mark()
    times, _ = clock.end_step()
    assert times.fields() == pytest.approx({"ms": 40.0, "probe_ms": 50.0})


def test_of_a_step_in_which_the_devices_became_known_the_beginning_is_the_hosts() -> None:
    cuda = Cuda()
    before, after = Mark(1.1, {0: cuda.Event(True)}), Mark(1.11, {0: cuda.Event(True)})
    before.events[0].record()
    cuda.current_stream().work(3)
    after.events[0].record()
    first = StepTimes(on_the_host(1.0), Mark(1.2, after.events), [(before, after)])
    assert first.fields() == pytest.approx({"ms": 197.0, "probe_ms": 3.0})


def test_before_a_parameter_is_known_a_mark_is_the_hosts_clock(cuda: Cuda) -> None:
    cuda.contexts.clear()
    assert step_time.mark([]).events == {} and not cuda.contexts
    assert set(step_time.mark([1]).events) == {1} and cuda.contexts == {1}


def test_a_capture_is_left_alone(cuda: Cuda) -> None:
    clock = clock_on(1)
    with cuda.stream(Stream(cuda, 1)):
        graph = cuda.Graph()
        graph.capture_begin()
        clock.begin_step()
        times, _ = clock.end_step()
        assert times.ready() and times.fields()["ms"] >= 0 and not times.ended.events
        graph.capture_end()
    assert set(clock.mark().events) == {1}


def test_memory_is_read_and_reset_once_a_step_and_only_where_parameters_lie(cuda: Cuda) -> None:
    clock = clock_on(1)
    for _ in range(2):
        cuda.asked.clear()
        cuda.allocate(1, 800)
        cuda.allocate(1, -800)
        for _ in range(3):  # hooks
            clock.entered = clock.mark()
            clock.leave()
        clock.read_peak()
        cuda.allocate(1, 5_000)  # digests at the end of the step
        cuda.allocate(1, -5_000)
        assert clock.end_step()[1] == 900
        clock.begin_step()
        assert cuda.asked == ["read 1", "reset 1"]
