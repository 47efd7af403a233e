"""What one process of a run is called, how it was started, and its memory."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from .patch import held

# a rank's variable, and that of how many there are, as torchrun, srun and mpirun set them
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_POOLS = ("multiprocessing.pool", "concurrent.futures.process", "loky.process_executor")
# nothing else imports it at start-up: a `resource.py` beside the training's script stays its own
sys.modules.pop("resource", None)


def process_key() -> str:
    """Return which of the run's processes this is: `main`, `rank1`, `SpawnProcess-2`."""
    ranks = distributed()
    if ranks is not None:
        return f"rank{ranks.get_rank()}"
    for variable, size in _RANKS:
        rank = os.environ.get(variable, "")
        # one task alone has no rank: it trains as it does without a launcher
        if rank.isdecimal() and (
            variable == "RANK" or os.environ.get(size, "1") != "1"
        ):
            return "rank" + rank[:10]
    multiprocessing = held("multiprocessing.process")
    name = multiprocessing.current_process().name if multiprocessing else "MainProcess"
    return "main" if name == "MainProcess" else str(name)[:200]


def distributed() -> Any:
    """Return `torch.distributed`, once this process has joined a group; None before."""
    module = held("torch.distributed")
    joined = getattr(module, "is_available", bool)() and module.is_initialized()
    return module if joined else None


def prepares_data() -> bool:
    """Return whether this process is a DataLoader's worker, or still imports the script of the
    process that started it: never one that trains."""
    if not started_by_multiprocessing():
        return False
    worker = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(worker, "_worker_info", None) is not None:
        return True
    process = held("multiprocessing.process")
    return hasattr(process.current_process(), "_inheriting")


def started_by_multiprocessing() -> bool:
    process = held("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def works_for_a_pool() -> bool:
    """Return whether the caller runs as a task of a pool of processes: what comes of it is handed
    back to the process that trains."""
    frame = sys._getframe(1) if started_by_multiprocessing() else None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).endswith(_POOLS):
            return True
        frame = frame.f_back
    return False


def arguments() -> list[str]:
    """Return the command line, as text that can be encoded."""
    # sys.argv is not set yet during start-up
    return list(map(str, getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])))


def resident_peak() -> int:
    """Return the peak resident memory of this process in bytes (Linux counts it in KiB, macOS in
    bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def imported_files() -> list[tuple[str, str]]:
    """Return name and file of each module that this process has imported from one."""
    files = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            files.append((name, file))
    return files


def mapped_files() -> list[str]:
    """Return the files that are mapped into this process's memory, each once; nothing where the
    system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = os.fsdecode(file.read()).split("\n")
    except OSError:
        return []
    paths = [line[line.index("/") :] for line in lines if "/" in line]
    return list(dict.fromkeys(paths))


def printable(text: str) -> str:
    """Return text that can be printed anywhere: a file name that is not UTF-8 shows its bytes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
