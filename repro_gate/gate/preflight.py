"""Checks two things before any long work: that the required GPUs are visible, and that /dev/shm is
large enough. Each problem has a remedy.

Only `look` reads the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import psutil

from repro_gate._version import DOCS_URL
from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.machine import gpu_devices
from repro_gate.report.model import Reason
from repro_gate.spec.model import Spec

MIB = 1 << 20
_SHM = "/dev/shm"  # noqa: S108  only read, never written
# DataLoader workers hand each batch over in /dev/shm, two a worker (`prefetch_factor`): 4 workers
# with batches of 64 pictures of 224 x 224 as float32 take 300 MiB, and NCCL takes some MiB for each
# pair of GPUs. Docker's default is 64 MiB.
SHM_TOTAL = 1024 * MIB
SHM_FREE = 256 * MIB
_SHM_CRASH = re.compile(
    r"DataLoader worker .*(?:is killed by signal: Bus error|exited unexpectedly)|insufficient "
    r"shared memory"
    r"|unable to (?:write to|mmap|allocate shared memory)|No space left on device: '?/dev/shm"
    r"|Error while creating shared memory segment",
    re.IGNORECASE,
)
_GPU = re.compile("(?!-|NoDevFiles$).")  # an entry of CUDA_VISIBLE_DEVICES
_PAGE = f"{DOCS_URL}/preflight.md"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about this machine. Memory that could not be read counts as enough."""

    devices: tuple[str, ...] = ()  # as `machine.gpu_devices` names them
    shm_total: int = SHM_TOTAL  # bytes
    shm_free: int = SHM_FREE  # for this user


def look(root: Path = Path("/")) -> Facts:
    """Read the facts. Raises nothing."""
    devices = gpu_devices(root / "dev")
    with suppress(OSError):
        total, _, free, _ = psutil.disk_usage(str(root / _SHM[1:]))
        return Facts(devices=devices, shm_total=total, shm_free=free)
    return Facts(devices=devices)


def preflight(
    spec: Spec,
    environment: Mapping[str, str],
    facts: Facts,
) -> tuple[Reason, ...]:
    """Return notes about this machine. `environment` is that of the gate's own process. Raises
    Inconclusive if a required GPU is not visible."""
    if spec.hardware.device == "cuda":
        _require_gpus(spec, {**environment, **spec.train.env}, facts)
    return _shared_memory(facts) if facts.devices else ()


def explains(tail: Sequence[str], facts: Facts) -> tuple[Reason, ...]:
    """Return the note about /dev/shm if the log shows a crash from full shared memory."""
    return _shared_memory(facts) if any(map(_SHM_CRASH.search, tail)) else ()


def _shared_memory(facts: Facts) -> tuple[Reason, ...]:
    """Return a note if /dev/shm is small. It is no error: a training without DataLoader workers
    needs none."""
    total = facts.shm_total
    free = facts.shm_free
    if total >= SHM_TOTAL and free >= SHM_FREE:
        return ()
    message = (
        f"{_SHM} has {free // MIB} of {total // MIB} MiB free; DataLoader workers pass batches "
        "through it and die with a bus error if it is full"
    )
    remedy = f"see what fills it, or enlarge it: `--shm-size=2g` ({_PAGE}#preflightshared-memory)"
    return (Reason("preflight/shared-memory", message, remedy),)


def _require_gpus(spec: Spec, environment: Mapping[str, str], facts: Facts) -> None:
    """Raise Inconclusive unless the GPUs that the spec requires are visible in the training's
    `environment`."""
    visible = _visible(environment, facts)
    required = spec.hardware.gpus or 1
    if not facts.devices:
        message = (
            "this machine shows no GPU: there is no /dev/nvidia0, /dev/kfd or /dev/dxg"
        )
        remedy = (
            "run the job on a machine with a GPU (`runs-on:`), load its driver, and start a "
            f"container with GPUs ({_PAGE}#preflightdevice)"
        )
    elif visible == 0:
        listed = for_terminal(environment["CUDA_VISIBLE_DEVICES"], 80)
        message = f"CUDA_VISIBLE_DEVICES is {listed!r}, which hides every GPU"
        remedy = (
            'take it out of the job\'s `env:` and of train.env, or name GPUs: `"0"`'
        )
    elif visible is not None and visible < required:
        message = (
            f"{required} GPUs are required (hardware.gpus), but {visible} are visible"
        )
        remedy = f"use a runner with {required} GPUs, or name them all in CUDA_VISIBLE_DEVICES"
    else:
        return
    raise Inconclusive(
        f"hardware.device: cuda is required: {message}",
        remedy=remedy,
        reason_id="preflight/device",
    )


def _visible(environment: Mapping[str, str], facts: Facts) -> int | None:
    """Return how many GPUs CUDA would count; None if the device files do not show it (WSL, AMD).

    CUDA reads CUDA_VISIBLE_DEVICES up to the first entry that is no GPU (CUDA C++ Programming
    Guide, "Environment Variables").
    """
    files = sum(name.startswith("nvidia") for name in facts.devices) or None
    entries = environment.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        return files
    valid = [*takewhile(_GPU.match, map(str.strip, entries.split(",")))]
    if files is None and valid:
        return None
    return min(files or 0, len(valid))
