"""Checks three things before any long work: that the scripts to run are in the checkout, that the
required GPUs are visible, and that /dev/shm is large enough. Each problem has a remedy. `look`
reads the machine, `require_scripts` the checkout.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import psutil

from repro_gate._version import DOCS_URL
from repro_gate.checkout.inspection import Checkout, listed_files
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import walk
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
_SCRIPTS = (".py", ".ipynb")
_RELATIVE = re.compile(r"(?![/~-])[^$`*?{}=]+")
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
    spec: Spec, environment: Mapping[str, str], facts: Facts
) -> tuple[Reason, ...]:
    """Return notes about this machine. `environment` is that of the gate's own process. Raises
    Inconclusive if a required GPU is not visible."""
    if spec.hardware.device == "cuda":
        _require_gpus(spec, {**environment, **spec.train.env}, facts)
    return _shared_memory(facts) if facts.devices else ()


def require_scripts(spec: Spec, checkout: Checkout) -> None:
    """Raise UsageError if a command of the spec starts with a script that is not in the checkout,
    with the name that is nearest."""
    start = spec.path.parent / spec.train.working_directory
    commands = {
        "train.run": spec.train.run,
        "resume.run": spec.resume and spec.resume.run,
    }
    commands |= {f"equivalent {way.name}": way.run for way in spec.equivalent}
    for key, run in commands.items():
        name = script_of(run or "")
        if not name or not start.is_dir() or (start / name).exists():
            continue
        folder = os.path.realpath(start)
        there = listed_files(checkout.root) if checkout.is_git else walk(checkout.root)
        scripts = [
            os.path.relpath(checkout.root / path, folder)
            for path in there
            if path.endswith(_SCRIPTS)
        ]
        own = os.path.basename(name)
        same = [path for path in scripts if os.path.basename(path) == own]
        near = [*same, *difflib.get_close_matches(name, scripts, 1)]
        remedy = "name one relative to train.working-directory"
        raise UsageError(
            f"{key}: there is no {name} in {start}",
            remedy=f"did you mean `{near[0]}`?" if near else remedy,
            reason_id="workspace/no-script",
        )


def script_of(run: str) -> str:
    """Return the script that a command starts with, relative to its folder; empty if that is not
    plain: a shell may make or fetch it first."""
    with suppress(ValueError):
        first = re.split(r"[|&;<>\n]", run.strip(), maxsplit=1)[0]
        plain = takewhile(lambda word: word != "-c", shlex.split(first))
        script = next((word for word in plain if word.endswith(_SCRIPTS)), "")
        if _RELATIVE.fullmatch(script):
            return script
    return ""


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
