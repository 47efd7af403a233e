"""What a training runs on, as a trace says it and as `python probe facts` says it before any
training; and the environment variables that torch and its libraries read. A fact that does not hold
(a GPU's, where CUDA was not started) is None and is left out."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any, Callable

from ..trace.format import MAX_NAME, MAX_VARIABLES, SECRET
from .digest import chosen
from .patch import wrap
from .process import printable, resident_peak
from .shared import PROCESS

NODE_VARIABLES = ("SLURMD_NODENAME", "NODE_NAME")
Facts = dict[str, Callable[[], Any]]
_DRIVER = "/proc/driver/nvidia/version"
BASIC: Facts = {  # for a process without torch
    # several nodes of Slurm's may share one machine, and a pod of Kubernetes' hides its node
    "host": lambda: next(
        filter(None, map(os.environ.get, NODE_VARIABLES)), os.uname()[1]
    ),
    "python": platform.python_version,
    "interpreter": lambda: sys.executable,
    "device": lambda: f"cpu: {platform.machine()}",
    "digest": lambda: chosen().name,
}
_READ = re.compile(  # beginnings of names, and names
    r"(?:TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|ATEN|C10|CUDA|CUDNN|CUBLAS|CUBLASLT|NVIDIA|NVTE|NVFUSER|NCCL|GLOO|UCX|FI|OMP|KMP"
    r"|GOMP|MKL|MKLDNN|ONEDNN|DNNL|OPENBLAS|BLIS|TRITON|FLASH_ATTENTION|HIP|HSA|ROCR|ROCBLAS|MIOPEN|XLA|MALLOC|TBB)_"
    r"|(?:CAUSAL_CONV1D_DETERMINISTIC|DYLD_INSERT_LIBRARIES|GLIBC_TUNABLES|LD_LIBRARY_PATH|LD_PRELOAD|LOCAL_RANK"
    r"|LOCAL_WORLD_SIZE|MAMBA_DETERMINISTIC|NUMEXPR_NUM_THREADS|PL_GLOBAL_SEED|PL_SEED_WORKERS|PYTHONHASHSEED|PYTHONOPTIMIZE"
    r"|RANK|SLURM_STEP_NUM_TASKS|VECLIB_MAXIMUM_THREADS|WORLD_SIZE)$"
)
_LOGIN = re.compile(r"://[^/\s]*@")
# CUBLAS_WORKSPACE_CONFIG as it stood when CUDA was started in this process
_AT_START: list[str] = []
# the GPUs on which this process had put anything when it was asked last
_IN_USE: list[int] = []
# GPU -> its memory statistics, with the largest peaks since the training's own last reset
_PEAKS: dict[int, Any] = {}


def main(request: dict[str, Any]) -> None:
    """Write the facts of this interpreter to the file `request["answer"]`, as one JSON object;
    without torch, those that hold without it. Unlike a trace, it uses the GPU."""
    answers = {}
    try:
        import torch

        PROCESS.torch = torch
        if torch.cuda.is_available():
            torch.zeros(1, device="cuda")
    except ModuleNotFoundError:
        pass
    except Exception as error:
        # a torch that is there and broken must not look like none
        why = f"{type(error).__name__}: {error}"
        sys.stderr.write(f"torch or CUDA cannot be started: {why}\n")
    for name, question in facts().items():
        try:
            answers.update(read({name: question}))
        except Exception as error:
            sys.stderr.write(f"{name} cannot be read: {error}\n")
    with open(request["answer"], "w", encoding="ascii") as file:
        file.write(json.dumps(answers) + "\n")


def facts(devices: Sequence[int] = ()) -> Facts:
    """Return name -> how to read it. `devices`: the GPUs on which the parameters lie; if there are
    none, those in use. The first of them is the one that is told."""
    torch = PROCESS.torch
    if torch is None:
        return BASIC
    cuda = torch.cuda
    version = torch.version.cuda
    hip = torch.version.hip
    cudnn = torch.backends.cudnn
    # the vector instructions that torch's own kernels use: `AVX2`, `DEFAULT`; the training may have
    # removed what says it
    isa = getattr(torch.backends.cpu, "get_cpu_capability", lambda: None)
    first = (devices or in_use())[:1]

    def device() -> str:
        if first:
            return f"cuda: {cuda.get_device_name(*first)}"
        others = {
            item.device.type
            for session in PROCESS.sessions
            if session.hooks
            for _, item in session.hooks.tensors.names.parameters
        } - {"cpu", "cuda", "meta"}
        return f"{min(others, default='cpu')}: {isa() or ''}"

    def nccl() -> str:
        known = hasattr(torch._C, "_nccl_version")
        return ".".join(map(str, cuda.nccl.version())) if known else "none"

    def gpu(form: str) -> Callable[[], str]:
        return lambda: form.format(cuda.get_device_properties(*first))

    def uuid() -> str | None:
        """Return the UUID as nvidia-smi prints it; torch before 2.6 does not have it."""
        found = getattr(cuda.get_device_properties(*first), "uuid", None)
        return found and f"GPU-{found}"

    of_gpu: Facts = {
        "gpu-model": gpu("{0.name}"),
        "gpu-sm-count": gpu("{0.multi_processor_count}"),
        "gpu-memory-bytes": gpu("{0.total_memory}"),
        "gpu-capability": gpu("{0.major}.{0.minor}"),
        "gpu-uuid": uuid,
        "driver": _driver,
        "cublas-workspace-at-cuda-start": lambda: _AT_START[0] if _AT_START else None,
    }
    return {
        **BASIC,
        "torch": lambda: torch.__version__,
        "cuda": lambda: version or "none",
        "hip": lambda: hip,
        "cudnn": lambda: (
            ((version or hip) and cudnn.is_available() and cudnn.version()) or "none"
        ),
        "nccl": nccl,
        "device": device,
        "gpus": cuda.device_count,
        "threads": torch.get_num_threads,
        "processors": _processors,
        "cpu-isa": isa,
        **(of_gpu if first else {}),
    }


def _driver() -> str | None:
    """Return the version of the kernel module that drives this node's GPUs; None where it cannot be
    read."""
    try:
        with open(_DRIVER, encoding="utf-8", errors="replace") as file:
            found = re.search(r"\b\d{2,}\.\d+[.\d]*\b", file.readline(1000))
    except OSError:
        return None
    return found and found.group()


def _processors() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() if affinity is None else len(affinity(0))


def watch_cuda_start(torch: Any) -> None:
    """Note CUBLAS_WORKSPACE_CONFIG at the moment the training starts CUDA; cuBLAS reads it once,
    with its first handle."""
    queue = getattr(torch.cuda, "_lazy_call", None)
    if queue is not None and torch.version.cuda and not torch.cuda.is_initialized():
        queue(lambda: _AT_START.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")))


def read(questions: Facts) -> dict[str, str]:
    """Return the facts that hold, as text."""
    values = {name: value() for name, value in questions.items()}
    return {name: str(value) for name, value in values.items() if value is not None}


def capturing() -> bool:
    """Return whether the training is capturing a CUDA graph, on any stream: what is queued now is
    not done now, and a question to a device would end the capture."""
    if not started():
        return False
    return bool(PROCESS.captures or PROCESS.torch.cuda.is_current_stream_capturing())


def synchronize() -> None:
    """Wait for the GPUs in use: what is read next may be written by any of their streams."""
    for device in [] if capturing() else in_use():
        PROCESS.torch.cuda.synchronize(device)


def peak_bytes(devices: Sequence[int]) -> int:
    """Return the peak of memory since the last reset, in bytes: the largest of these GPUs, else
    resident memory (never reset)."""
    peak = 0
    for device in [] if capturing() else devices:
        stats = PROCESS.torch._C._cuda_memoryStats(device)
        peak = max(peak, stats["allocated_bytes"]["all"]["peak"])
        _raise_peaks(stats, _PEAKS.get(device, {}))
        _PEAKS[device] = stats
    return peak or resident_peak()


def reset_peak(devices: Sequence[int]) -> None:
    """Forget the peaks of these GPUs, after `peak_bytes`."""
    for device in [] if capturing() else devices:
        PROCESS.torch._C._cuda_resetPeakMemoryStats(device)


def keep_peaks(torch: Any) -> None:
    """Let the training read the peaks of memory as if `reset_peak` had not been called."""

    def read(original: Any, device: int) -> Any:
        stats = original(device)
        _raise_peaks(stats, _PEAKS.get(device, {}))
        return stats

    def reset(original: Any, device: int) -> None:
        _PEAKS.pop(device, None)
        original(device)

    for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):
        wrap(torch._C, name, read)
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        wrap(torch._C, name, reset)


def _raise_peaks(stats: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Raise each peak of nested statistics to what it was before, if that was more."""
    for name, value in before.items():
        if isinstance(value, dict):
            _raise_peaks(stats.get(name, {}), value)
        elif name == "peak" and name in stats:
            stats[name] = max(stats[name], value)


def started() -> bool:
    """Return whether this process has started CUDA."""
    return PROCESS.torch is not None and bool(PROCESS.torch.cuda.is_initialized())


def used() -> bool:
    """Return whether this process has put anything on a GPU."""
    return bool(in_use())


def in_use() -> list[int]:
    """Return the GPUs on which this process has put anything. That CUDA is started does not say it:
    optimizers of newer torch start it to take a step on the CPU."""
    if started() and not capturing():
        _IN_USE.clear()
        for device in range(PROCESS.torch.cuda.device_count()):
            stats = PROCESS.torch._C._cuda_memoryStats(device)
            if stats["allocation"]["all"]["allocated"]:
                _IN_USE.append(device)
    return _IN_USE


def library_variables() -> dict[str, str]:
    """Return name and value, by name. What looks like a secret, by its name or as a login in an
    address, is left out."""
    variables = [
        (name[:200], printable(value)[:MAX_NAME])
        for name, value in sorted(os.environ.items())
        if _READ.match(name) and not SECRET.search(name) and not _LOGIN.search(value)
    ]
    return dict(variables[:MAX_VARIABLES])
