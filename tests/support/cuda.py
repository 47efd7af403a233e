"""A stand-in for `torch.cuda` that is stateful and strict: it counts the contexts that were opened,
and raises where CUDA, or a training that captures a graph, would not bear what was done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

Stats = dict[str, Any]


class Stream:
    """A queue of one device, whose work ends at `at` milliseconds of the device's clock."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self.cuda, self.device, self.at, self.capturing = cuda, device, 0.0, False

    def work(self, milliseconds: float) -> None:
        """Queue work of the training's own."""
        self.cuda.contexts.add(self.device)
        self.at += milliseconds


class Event:
    """As `torch.cuda.Event`: of the device of the stream on which it was recorded."""

    def __init__(self, cuda: Cuda, enable_timing: bool = False) -> None:
        self.cuda, self.timed = cuda, enable_timing
        self.device: int | None = None
        self.at = 0.0

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self.cuda.current_stream()
        self.cuda.touch(stream.device, "record of an event")
        assert self.device in (None, stream.device), "an event belongs to one device"
        self.device, self.at = stream.device, stream.at

    def query(self) -> bool:
        self.cuda.no_capture("query of an event")
        return self.device is None or self.at <= self.cuda.clocks[self.device]

    def synchronize(self) -> None:
        self.cuda.no_capture("synchronize of an event")
        if self.device is not None:
            clocks = self.cuda.clocks
            clocks[self.device] = max(clocks[self.device], self.at)

    def elapsed_time(self, other: Event) -> float:
        if self.device is None or self.device != other.device:
            raise RuntimeError("events of two devices, or one that was not recorded")
        if not (self.timed and other.timed and self.query() and other.query()):
            raise RuntimeError("events without timing, or that were not reached")
        return other.at - self.at


class Graph:
    """A graph, captured on the stream that is current as the capture begins."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.stream = self.cuda.current_stream()
        self.cuda.no_capture("second capture")
        self.stream.capturing = True

    def capture_end(self) -> None:
        self.stream.capturing = False


class Cuda:
    """What the probe asks of `torch.cuda`; `in_torch` has what it asks of torch beside."""

    def __init__(self, devices: int = 2, started: bool = True) -> None:
        self.started, self.current = started, 0
        self.contexts = set[int]()  # devices that anything was done on
        self.synchronized: list[int] = []
        self.clocks = [0.0] * devices  # what each device has done, in milliseconds
        self.streams = [[Stream(self, device)] for device in range(devices)]
        self.of_thread = [streams[0] for streams in self.streams]  # the current ones
        self.queued: list[Any] = []
        self.memory = [[0, 0, 0] for _ in range(devices)]  # bytes now, at most, in all
        self.asked: list[str] = []  # of memory
        shape = {"multi_processor_count": 132, "total_memory": 150_000_000_000, "major": 9}
        self.properties = [
            SimpleNamespace(name=f"GPU {device}", uuid=f"0-{device}", minor=0, **shape)
            for device in range(devices)
        ]
        self.nccl = SimpleNamespace(version=lambda: (2, 27, 5))
        self._lazy_call = self.queued.append

    # what is done to it

    def no_capture(self, what: str) -> None:
        for stream in (stream for streams in self.streams for stream in streams):
            if stream.capturing:
                raise RuntimeError(f"{what} while a stream of device {stream.device} captures")

    def touch(self, device: int, what: str) -> None:
        assert self.started, what
        self.no_capture(what)
        self.contexts.add(device)

    def allocate(self, device: int, size: int) -> None:
        """Hold so many more bytes; below zero, so many fewer."""
        memory = self.memory[device]
        memory[0] += size
        memory[1], memory[2] = max(memory[:2]), memory[2] + max(size, 0)
        self.contexts.add(device)

    def finish(self) -> None:
        """Let all devices come to the end of what was queued."""
        for device, streams in enumerate(self.streams):
            self.clocks[device] = max(stream.at for stream in streams)

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """As `torch.cuda.stream`: a stream of another device makes that one the current."""
        if stream not in self.streams[stream.device]:
            self.streams[stream.device].append(stream)
        before = self.current, self.of_thread[stream.device]
        self.current, self.of_thread[stream.device] = stream.device, stream
        yield
        self.current, self.of_thread[stream.device] = before

    # what it is asked

    def Graph(self) -> Graph:  # noqa: N802  as torch has it
        return Graph(self)

    def Event(self, enable_timing: bool = False) -> Event:  # noqa: N802  as torch has it
        return Event(self, enable_timing)

    def is_initialized(self) -> bool:
        return self.started

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.clocks)

    def current_device(self) -> int:
        return self.current

    def current_stream(self, device: int | None = None) -> Stream:
        return self.of_thread[self.current if device is None else device]

    def is_current_stream_capturing(self) -> bool:
        return self.current_stream().capturing

    def synchronize(self, device: int | None = None) -> None:
        device = self.current if device is None else device
        self.touch(device, "synchronize")
        self.clocks[device] = max(stream.at for stream in self.streams[device])
        self.synchronized.append(device)

    def get_device_properties(self, device: int) -> Any:
        return self.properties[device]

    def get_device_name(self, device: int | None = None) -> str:
        return str(self.properties[self.current if device is None else device].name)

    def stats(self, device: int) -> Stats:
        """As `torch._C._cuda_memoryStats`, which opens no context."""
        self.no_capture("memory statistics")
        self.asked.append(f"read {device}")
        now, peak, ever = self.memory[device]
        figures = {"current": now, "peak": peak, "allocated": ever, "freed": ever - now}
        return {
            "allocated_bytes": {"all": figures},
            "allocation": {"all": {**figures, "peak": peak // 512}},
            "num_ooms": 0,
        }

    def reset(self, device: int) -> None:
        self.no_capture("reset of memory statistics")
        self.asked.append(f"reset {device}")
        self.memory[device][1] = self.memory[device][0]


class _Core:
    """`torch._C`: the stand-in's statistics, else the real one's."""

    def __init__(self, cuda: Cuda) -> None:
        self._nccl_version = None
        self._cuda_memoryStats, self._cuda_resetPeakMemoryStats = cuda.stats, cuda.reset

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch._C, name)


def in_torch(cuda: Cuda) -> Any:
    """A torch that is built for CUDA and has this `torch.cuda`."""
    space = SimpleNamespace
    cudnn = space(version=lambda: 91002, is_available=lambda: True)
    return space(
        __version__="2.13.0+cu128",
        version=space(cuda="12.8", hip=None),
        get_num_threads=lambda: 8,
        backends=space(cudnn=cudnn, cpu=space(get_cpu_capability=lambda: "AVX512")),
        _C=_Core(cuda),
        cuda=cuda,
    )
