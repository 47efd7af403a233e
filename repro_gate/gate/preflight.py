"""Looked at before anything long: is the GPU visible, is its driver new enough, is /dev/shm large
enough, does the container runtime hand GPUs in. Each with the exact line to change where not.

`look` alone touches the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.machine import driver_complaint, driver_version, gpu_devices
from repro_gate.report.model import Reason
from repro_gate.spec.model import Spec

_SHM = "/dev/shm"  # noqa: S108  looked at, and nothing is put there
# set in the image: the CUDA version that its torch was built for, such as `13.0`
CUDA_VARIABLE = "REPRO_GATE_CUDA"
MIB = 1 << 20

# Oldest driver for each major version of CUDA on Linux: NVIDIA, "CUDA Compatibility", "Minor
# Version Compatibility", table 1 (>= 450, >= 525, >= 580;
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html), with the full
# numbers that "CUDA Toolkit Release Notes" give for the first driver of each branch.
OLDEST_DRIVER: Mapping[int, tuple[int, ...]] = {
    11: (450, 80, 2),
    12: (525, 60, 13),
    13: (580, 65, 6),
}

# DataLoader workers hand each batch over in /dev/shm, two a worker (`prefetch_factor`): 4 workers
# with batches of 64 pictures of 224 x 224 as float32 take 300 MiB, and NCCL takes some MiB for each
# pair of GPUs. Docker's default is 64 MiB.
SHM_WANTED, SHM_FREE = 1024 * MIB, 256 * MIB

_DRIVER_IS_LOST = re.compile(
    r"version mismatch|couldn't communicate with the NVIDIA driver|No devices (?:were )?found",
    re.IGNORECASE,
)
_SHM_CRASH = re.compile(
    r"DataLoader worker .*(?:is killed by signal: Bus error|exited unexpectedly)|insufficient "
    r"shared memory"
    r"|unable to (?:write to|mmap|allocate shared memory)|No space left on device: '?/dev/shm"
    r"|Error while creating shared memory segment",
    re.IGNORECASE,
)
# values of NVIDIA_VISIBLE_DEVICES that hand no device in (nvidia-container-runtime)
_NO_GPUS = (
    "void",
    "none",
    "",
)

_SET_RUNTIME = (
    "on the runner's host, make nvidia the default runtime: `sudo nvidia-ctk runtime configure "
    "--runtime=docker --set-as-default && "
    'sudo systemctl restart docker` (it writes `"default-runtime": "nvidia"` and `"runtimes": '
    '{"nvidia": {"args": [], "path": '
    '"nvidia-container-runtime"}}` to /etc/docker/daemon.json); '
)
_OTHER_WAYS = (
    "or use the action's docker-run/action.yml, which starts the image with `--gpus all`; or its "
    "native/action.yml in a job with `container: {options: --gpus all}`"
)
_POD = "ask for a GPU in the runner's pod: `resources: {limits: {nvidia.com/gpu: 1}}`"
_PODMAN = "start the container with `--device nvidia.com/gpu=all`"
_SHM_REMEDY = {
    "docker": '`"default-shm-size": "2G"` in /etc/docker/daemon.json of the runner\'s host and '
    "`sudo "
    "systemctl restart docker` (container "
    "action); `shm_size: 2g` (docker-run/action.yml); `container: {options: --shm-size=2g}` "
    "(native/action.yml in a job container)",
    "podman": "start the container with `--shm-size=2g`",
    "kubernetes": "mount memory at /dev/shm in the runner's pod: a volume `emptyDir: {medium: "
    "Memory, sizeLimit: 2Gi}`",
    "": "make it larger: `sudo mount -o remount,size=2G /dev/shm`",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one look at this machine showed. None: it cannot be known."""

    devices: tuple[str, ...] = ()  # as `machine.gpu_devices` names them
    complaint: str = ""  # nvidia-smi's own words where it fails
    driver: str = ""  # NVIDIA's, `580.65.06`; `` where there is none
    # NVIDIA's forward-compatibility libraries are installed, so that an older driver may do
    compatible: bool = False
    container: str = ""  # `docker`, `podman`, `kubernetes`, or `` for none
    shm_total: int | None = None  # bytes
    shm_free: int | None = None


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be; where `required`, a gate run can only fail."""

    # `preflight/device`, `preflight/driver`, `preflight/shared-memory` or `preflight/runtime`
    id: str
    required: bool
    message: str
    remedy: str


def look(environment: Mapping[str, str], root: Path = Path("/")) -> Facts:
    """The facts. Takes a few milliseconds; up to some seconds where there are GPUs and the driver
    is slow. Raises nothing."""
    devices = gpu_devices(root / "dev")
    nvidia = any(name.startswith("nvidia") for name in devices)
    total, free = _space(root / "dev/shm")
    return Facts(
        devices=devices,
        complaint=driver_complaint() if nvidia else "",
        driver=driver_version() if nvidia else "",
        compatible=any((root / "usr/local").glob("cuda*/compat/libcuda.so*")),
        container=_container(environment, root),
        shm_total=total,
        shm_free=free,
    )


def preflight(spec: Spec, environment: Mapping[str, str], facts: Facts) -> tuple[Problem, ...]:
    """All problems, the ones that end a gate run first. `environment` is the one that the gate was
    started in."""
    needed = bool(facts.devices) or spec.hardware.device == "cuda"
    found = (
        _runtime(spec, environment, facts),
        _device(spec, {**environment, **spec.train.env}, facts),
        _driver(spec, environment, facts),
        _shared_memory(facts) if needed else None,
    )
    return tuple(item for item in found if item is not None)


def require(problems: Sequence[Problem]) -> None:
    """Raises Inconclusive with the first problem with which no run can succeed."""
    for item in problems:
        if item.required:
            raise Inconclusive(item.message, remedy=item.remedy, reason_id=item.id)


def notes(problems: Sequence[Problem]) -> tuple[Reason, ...]:
    """What is worth knowing though it ends nothing."""
    return tuple(
        Reason(item.id, item.message, item.remedy) for item in problems if not item.required
    )


def explains(tail: Sequence[str], facts: Facts) -> Problem | None:
    """The problem of /dev/shm, where a run ended with a message that full shared memory causes and
    /dev/shm is small; else None."""
    return _shared_memory(facts) if any(_SHM_CRASH.search(line) for line in tail) else None


def _runtime(spec: Spec, environment: Mapping[str, str], facts: Facts) -> Problem | None:
    """A container whose image asks for GPUs (NVIDIA_VISIBLE_DEVICES) and which got none was not
    started by NVIDIA's runtime."""
    asked = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if (
        facts.devices
        or not facts.container
        or asked.lower() in _NO_GPUS
        or spec.hardware.device != "cuda"
    ):
        return None
    message = (
        "hardware.device: cuda is required, and this container shows no GPU though its image asks "
        f"for them (NVIDIA_VISIBLE_DEVICES={for_terminal(asked, 80)}): the container's runtime is "
        "not nvidia"
    )
    return Problem("preflight/runtime", True, message, _hand_in(facts))


def _hand_in(facts: Facts) -> str:
    """How a GPU gets into this kind of container."""
    return {"kubernetes": _POD, "podman": _PODMAN}.get(facts.container, _SET_RUNTIME + _OTHER_WAYS)


def _device(spec: Spec, seen: Mapping[str, str], facts: Facts) -> Problem | None:
    """`seen` is what the training's process would find in its environment."""
    name, required = "preflight/device", spec.hardware.device == "cuda"
    if spec.hardware.device == "cpu" or not (required or facts.devices):
        return None
    if not facts.devices:
        message, remedy = _absent(seen, facts)
        return Problem(
            name,
            required,
            f"hardware.device: cuda is required, and this machine shows no GPU: {message}",
            remedy,
        )
    if facts.complaint:
        lost = required and bool(_DRIVER_IS_LOST.search(facts.complaint))
        return Problem(
            name,
            lost,
            f"nvidia-smi fails: {for_terminal(facts.complaint, 300)}",
            _answer(facts.complaint),
        )
    visible, wanted = _visible(seen, facts), spec.hardware.gpus
    if visible == 0:
        if not required and "CUDA_VISIBLE_DEVICES" in spec.train.env:  # the spec itself hides them
            return None
        message = (
            f"CUDA_VISIBLE_DEVICES is {for_terminal(seen['CUDA_VISIBLE_DEVICES'], 80)!r}, which "
            "hides every GPU"
        )
        return Problem(
            name,
            required,
            message,
            'take it out of the job\'s `env:` and of train.env, or name GPUs: `"0"`',
        )
    if wanted is not None and visible is not None and visible < wanted:
        remedy = (
            f"take a runner with {wanted} GPUs, name them all in CUDA_VISIBLE_DEVICES, or correct "
            "hardware.gpus"
        )
        return Problem(
            name,
            required,
            f"hardware.gpus: {wanted} are required, and {visible} can be seen",
            remedy,
        )
    return None


def _absent(seen: Mapping[str, str], facts: Facts) -> tuple[str, str]:
    """Why there is no device file of a GPU, and what to change."""
    asked = seen.get("NVIDIA_VISIBLE_DEVICES")
    if facts.container and asked is not None and asked.lower() in _NO_GPUS:
        said = f"NVIDIA_VISIBLE_DEVICES is {for_terminal(asked)!r}, so the container got none"
        remedy = (
            "start the container with `NVIDIA_VISIBLE_DEVICES: all` in its environment "
            "(docker-run/action.yml: `gpus: all`)"
        )
        return said, f"{remedy}, or take `device: cuda` out of the spec"
    if facts.container:
        return "the container was started without GPUs", _hand_in(facts)
    remedy = (
        "run the job on a machine with a GPU (`runs-on:`), load its driver (`nvidia-smi` must list "
        "it), or take `device: cuda` out"
    )
    return "there is no /dev/nvidia0, /dev/kfd or /dev/dxg", remedy


def _answer(complaint: str) -> str:
    if "version mismatch" in complaint.lower():
        return "restart the host: its driver was updated, and the old kernel module is still loaded"
    return (
        "make `nvidia-smi -L` list the GPUs on the host, then in the container; restart the "
        "container where only that one fails"
    )


def _visible(seen: Mapping[str, str], facts: Facts) -> int | None:
    """How many GPUs CUDA would count; None where the device files do not tell (Windows' subsystem,
    AMD).

    CUDA reads CUDA_VISIBLE_DEVICES up to the first entry that is no GPU (CUDA C++ Programming
    Guide, "Environment Variables").
    """
    files = sum(name.startswith("nvidia") for name in facts.devices) or None
    listed = seen.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return files
    entries = [entry.strip() for entry in listed.split(",")]
    valid = next(
        (
            index
            for index, entry in enumerate(entries)
            if not entry or entry.startswith("-") or entry == "NoDevFiles"
        ),
        len(entries),
    )
    return 0 if valid == 0 else None if files is None else min(files, valid)


def _driver(spec: Spec, environment: Mapping[str, str], facts: Facts) -> Problem | None:
    """The driver against the CUDA that the image's torch was built for. What `env.install` brings
    may be built for another one."""
    cuda = environment.get(CUDA_VARIABLE, "")
    major = int(cuda.partition(".")[0]) if re.fullmatch(r"\d{1,3}(\.\d{1,3}){0,2}", cuda) else 0
    oldest, found = OLDEST_DRIVER.get(major), _numbers(facts.driver)
    if (
        spec.hardware.device == "cpu"
        or oldest is None
        or not found
        or "dxg" in facts.devices
        or found >= oldest
        or facts.compatible
    ):
        return None
    wanted = ".".join(f"{number:02d}" for number in oldest)
    older = max(
        (version for version, first in OLDEST_DRIVER.items() if first <= found), default=None
    )
    other = (
        ""
        if older is None
        else f", or use an image whose torch is built for CUDA {older} (its tag says so)"
    )
    message = (
        f"the driver is {facts.driver}, and torch of this image is built for CUDA {cuda}, which "
        f"needs {wanted} or newer"
    )
    required = spec.hardware.device == "cuda" and not spec.env.install
    return Problem(
        "preflight/driver",
        required,
        message,
        f"update the NVIDIA driver of the host to {wanted} or newer{other}",
    )


def _shared_memory(facts: Facts) -> Problem | None:
    """Too little is never the end: a training without DataLoader workers needs none."""
    name, total, free = "preflight/shared-memory", facts.shm_total, facts.shm_free
    if total is None or free is None or (total >= SHM_WANTED and free >= SHM_FREE):
        return None
    if total < SHM_WANTED:
        message = (
            f"{_SHM} has {total // MIB} MiB; DataLoader workers pass batches through it and end "
            "with a bus error where it is full"
        )
        return Problem(
            name, False, message, _SHM_REMEDY.get(facts.container, _SHM_REMEDY["docker"])
        )
    message = (
        f"{_SHM} has {free // MIB} MiB free of {total // MIB}; DataLoader workers pass batches "
        "through it"
    )
    return Problem(
        name,
        False,
        message,
        "see what fills it (`ls -l /dev/shm`), and remove what no process uses any more",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return (
        tuple(int(part) for part in version.split("."))
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})*", version)
        else ()
    )


def _container(environment: Mapping[str, str], root: Path) -> str:
    """Which kind of container this is; the files are made by the engines themselves."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "docker" if (root / ".dockerenv").exists() else ""


def _space(folder: Path) -> tuple[int | None, int | None]:
    """Bytes in all and free for this user."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError):
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
