"""The device's clock and memory."""

from __future__ import annotations

from typing import Any

from .process import resident_peak


def synchronize(torch: Any) -> None:
    """Wait for the work that the training has queued, where it has started CUDA and is not capturing a graph."""
    if started(torch) and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def peak_bytes(torch: Any) -> int:
    """The peak of memory since the last reset, in bytes: the largest of all GPUs in use, else resident memory (never reset)."""
    if started(torch):
        return int(max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count())))
    return resident_peak()


def reset_peak(torch: Any) -> None:
    """Forget the peak, so that what the digests held is not counted. Training that reads this statistic sees it since its last step."""
    if started(torch):
        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def started(torch: Any) -> bool:
    """Whether this process has started CUDA."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())
