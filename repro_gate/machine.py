"""What the gate reads of this machine by itself, without torch: CPU, memory, system, driver and
GPUs; and who else computes on the GPUs. Nothing here raises: a fact that cannot be read is absent.
`nvidia-smi` is asked by its documented options and with a time limit.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

SMI_SECONDS = 20.0  # a driver that has lost a GPU lets nvidia-smi wait for ever
# what is stuck inside the driver does not die, and nobody waits for it
_KILL_SECONDS = 2.0
_MOST_TEXT = 1 << 20  # characters read of a file in /proc, or of an answer
_GPU_FIELDS = {  # nvidia-smi's name -> ours, behind `gpu.N.`
    "name": "model",
    "uuid": "uuid",
    "memory.total": "memory",
    "compute_cap": "capability",
    "mig.mode.current": "mig",
    "ecc.mode.current": "ecc",
    "ecc.errors.corrected.volatile.total": "ecc-corrected",
    "ecc.errors.uncorrected.volatile.total": "ecc-uncorrected",
    "clocks.max.sm": "clock-sm",
    "clocks.max.memory": "clock-memory",
}
# what of a GPU changes while it computes; the last by its newer and by its older name
_READINGS = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "temperature.gpu": "celsius",
    "power.draw": "watts",
}
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_SLOWED = (  # by the bits of NVML's nvmlClocksEventReasons
    "idle",
    "application clocks",
    "power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
    "display clocks",
)
_MOST_GPUS = 64
_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_FIGURE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(?: (?:MHz|W))?")
_MASK = re.compile(r"0x[0-9A-Fa-f]{1,16}")
# may differ tomorrow on the same machine: no facts of a baseline
PASSING = r"gpu\.\d+\.(?:ecc|clock)-.*"
_CPUINFO = Path("/proc/cpuinfo")
_DRIVER = Path("/proc/driver/nvidia/version")
_DEVICES = Path("/dev")
# not nvidiactl or nvidia-uvm, which are there without a GPU too
_GPU_DEVICE = re.compile(r"nvidia\d+|nvhost-gpu|nvgpu|kfd|dxg")
_ARM_PARTS = (
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
)
_VERSION = re.compile(r"\b\d{2,}\.\d+(?:\.\d+)*\b")
# `[N/A]`, `[Not Supported]`, `[Unknown Error]`
_UNKNOWN = re.compile(r"^(?:\[.*\]|N/A|)$", re.DOTALL)


def read_machine() -> dict[str, str]:
    """Return facts by name: `cpu-model`, `cpu-count`, `memory-bytes`, `os`, `kernel`, `libc`,
    `driver`, and for each GPU N from 0 `gpu.N.model`, `.uuid`, `.memory`, `.capability`, `.mig`,
    `.ecc`, `.ecc-corrected` and `.ecc-uncorrected` (errors since the driver was loaded),
    `.clock-sm` and `.clock-memory` (the highest), as nvidia-smi words them. A fact that cannot be
    read is absent."""
    gpus, smi_driver = _gpus()
    facts = {
        "cpu-model": _cpu_model(),
        "cpu-count": str(os.cpu_count() or ""),
        "memory-bytes": str(psutil.virtual_memory().total),
        "os": _system(),
        "kernel": f"{platform.system()} {platform.release()}".strip(),
        "libc": " ".join(filter(None, platform.libc_ver())),
        "driver": _kernel_driver() or smi_driver,
    }
    return {name: value for name, value in {**facts, **gpus}.items() if value}


def gpu_processes() -> tuple[str, ...] | None:
    """Return the processes that compute on the GPUs now, as `PID NAME (MEMORY)`, sorted by PID.

    None where nvidia-smi is not there or does not answer. In a container the driver shows processes
    of the container alone, or none.
    """
    answer = _nvidia_smi(
        "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"
    )
    if answer is None:
        return None
    processes: dict[int, str] = {}
    for line in answer.splitlines():
        pid, _, rest = line.partition(", ")
        name, _, memory = map(str.strip, rest.rpartition(", "))
        if pid.strip().isdecimal():
            used = "" if _UNKNOWN.fullmatch(memory) else f" ({memory})"
            processes[int(pid)] = f"{int(pid)} {name or '(unknown)'}{used}"
    return tuple(processes[pid] for pid in sorted(processes))


def gpu_states() -> list[dict[str, Any]]:
    """Return `gpu` (the UUID), `sm_mhz`, `memory_mhz`, `celsius`, `watts` (None where unknown) and
    `slowed` of each GPU now, as `compare.model.GpuState` explains them; empty where nvidia-smi does
    not answer."""
    queries = (_query(["uuid", *_READINGS, reasons]) for reasons in _REASONS)
    states = []
    for uuid, *values, mask in next(filter(None, queries), [])[:_MOST_GPUS]:
        found = map(_FIGURE.fullmatch, values)
        figures = [match and float(match[1]) for match in found]
        bits = int(mask, 16) if _MASK.fullmatch(mask) else None
        slowed = (name for bit, name in enumerate(_SLOWED) if bits and bits >> bit & 1)
        if _UUID.fullmatch(uuid):
            states.append(
                {
                    "gpu": uuid,
                    **dict(zip(_READINGS.values(), figures, strict=True)),
                    "slowed": ("unknown",) if bits is None else tuple(slowed),
                }
            )
    return states


def gpu_devices(folder: Path = _DEVICES) -> tuple[str, ...]:
    """Return the device files through which a GPU is reached, by name, sorted: `nvidia0` …,
    `nvhost-gpu` or `nvgpu` (Jetson), `kfd` (AMD), `dxg` (Windows' subsystem for Linux)."""
    with contextlib.suppress(OSError):
        return tuple(filter(_GPU_DEVICE.fullmatch, sorted(os.listdir(folder))))
    return ()


def _gpus() -> tuple[dict[str, str], str]:
    """Return (facts of every GPU, driver version), empty where nothing answers. Of an nvidia-smi
    that does not know one of the fields only model, UUID and memory are asked."""
    fields = ["driver_version", *_GPU_FIELDS]
    # An older nvidia-smi does not know the last of them, and then answers nothing.
    rows = _query(fields) or _query(fields[:4])
    facts = {
        f"gpu.{number}.{name}": value
        for number, (_, *values) in enumerate(rows)
        for name, value in zip(_GPU_FIELDS.values(), values, strict=False)
    }
    return facts, rows[0][0] if rows else ""


def _query(fields: list[str]) -> list[list[str]]:
    """Return one row for each GPU, its values in the order of `fields`, empty where unknown; none
    where nvidia-smi cannot answer that."""
    answer = _nvidia_smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    rows = (line.split(", ") for line in (answer or "").splitlines())
    return [
        [_UNKNOWN.sub("", value.strip()) for value in row]
        for row in rows
        if len(row) == len(fields)
    ]


def _nvidia_smi(*arguments: str) -> str | None:
    """Return what nvidia-smi prints; None where it is not there, fails (its complaints too go to
    standard output), or does not answer in time (and is then not waited for)."""
    try:
        process = subprocess.Popen(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError:
        return None
    try:
        answer, _ = process.communicate(timeout=SMI_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_KILL_SECONDS)
        return None
    text = answer[:_MOST_TEXT].decode("utf-8", "replace")
    return None if process.returncode else text


def descendants(pid: int) -> list[psutil.Process]:
    """Return every process below one; none if that is gone."""
    with contextlib.suppress(psutil.Error, OSError):
        return psutil.Process(pid).children(recursive=True)
    # on a machine that hides other users' processes (`hidepid=1`), these are passed over
    processes = list(psutil.process_iter(["ppid"]))
    below = {pid}
    size = 0
    while len(below) != size:
        size = len(below)
        below |= {item.pid for item in processes if item.info["ppid"] in below}
    return [item for item in processes if item.pid in below - {pid}]


def _cpu_model() -> str:
    """Return the name that the processor gives itself; on ARM, which gives none, the numbers that
    stand for it. Several are joined by ` + `."""
    names = list[str]()
    for processor in _text(_CPUINFO).split("\n\n"):
        lines = (line.partition(":") for line in processor.splitlines())
        entry = {key.strip(): value.strip() for key, _, value in lines}
        parts = (
            f"{part.removeprefix('CPU ')} {entry[part]}"
            for part in _ARM_PARTS
            if part in entry
        )
        name = entry.get("model name") or ", ".join(parts) or entry.get("cpu", "")
        names.append(" ".join(name.split()))
    return " + ".join(filter(None, dict.fromkeys(names))) or platform.processor()


def _system() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return platform.system()


def _kernel_driver() -> str:
    """Return the version of the NVIDIA kernel module that is loaded: `NVRM version: NVIDIA UNIX
    x86_64 Kernel Module 535.104.05 Sat Aug …`."""
    version = _VERSION.search(_text(_DRIVER).partition("\n")[0])
    return version.group() if version else ""


def _text(path: Path) -> str:
    with (
        contextlib.suppress(OSError),
        path.open(encoding="utf-8", errors="replace") as file,
    ):
        return file.read(_MOST_TEXT)
    return ""
