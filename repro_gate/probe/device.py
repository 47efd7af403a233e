"""What the training runs on: facts for the trace, and the device's clock and memory. Called by `torch_hooks`; never starts CUDA itself."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict

from .session import resident_peak


def synchronize(torch: Any) -> None:
    """Wait for the work that the training has queued, where it has started CUDA and is not capturing a graph."""
    if _started(torch) and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def peak_bytes(torch: Any) -> int:
    """The peak of memory since the last reset, in bytes: the largest of all GPUs in use, else resident memory (never reset)."""
    if _started(torch):
        return int(max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count())))
    return resident_peak()


def reset_peak(torch: Any) -> None:
    """Forget the peak, so that what the digests held is not counted. Training that reads this statistic sees it since its last step."""
    if _started(torch):
        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)


def _started(torch: Any) -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def facts(torch: Any) -> Dict[str, Callable[[], str]]:
    """What this process is, read when training begins (asking earlier could start CUDA before the training does)."""

    def device() -> str:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            return "cuda: %s" % torch.cuda.get_device_name()
        return "cpu: %s" % (torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else "")

    return {
        "torch": lambda: torch.__version__,
        "cuda": lambda: torch.version.cuda or "none",
        "cudnn": lambda: torch.backends.cudnn.version() if torch.version.cuda and torch.backends.cudnn.is_available() else "none",
        "device": device,
        "gpus": lambda: torch.cuda.device_count() if torch.version.cuda else 0,
        "threads": lambda: str(torch.get_num_threads()),
        "interpreter": lambda: sys.executable,
        "processors": lambda: str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
    }
