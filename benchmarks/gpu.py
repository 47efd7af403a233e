"""What needs CUDA: the digest on the device, the step with and without the probe. Under five
minutes.

The same measurements as on a CPU, with larger models: a GPT of 124 million parameters, and one of a
billion.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import digest_speed, step_overhead
from benchmarks.figure import Figure

MIB = 2**20
SIZES = (64 * 1024, MIB, 16 * MIB, 256 * MIB, 4096 * MIB)
DIGEST = digest_speed.Settings(SIZES, rounds=20, batch=64 * MIB, device="cuda")
STEP = step_overhead.Settings(
    models=("transformer", "gpt-124m", "gpt-1b"),
    peers_of=(),
    arguments="--device cuda",
    steps=20,
    rounds=2,
)


@dataclass(frozen=True)
class Settings:
    """The settings of the two measurements."""

    digest: digest_speed.Settings = DIGEST
    step: step_overhead.Settings = STEP


QUICK = Settings(
    replace(digest_speed.QUICK, device="cuda"),
    replace(step_overhead.QUICK, arguments="--device cuda"),
)


def measure(settings: Settings) -> list[Figure]:
    """All figures, each named for what it is of. Raises RuntimeError where torch sees no CUDA
    device."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "benchmarks/gpu.py: torch sees no CUDA device here; the CPU's figures come from "
            "`python benchmarks/run.py`"
        )
    found = digest_speed.measure(settings.digest)
    torch.cuda.empty_cache()  # the trainings below are processes of their own
    found += step_overhead.measure(settings.step)
    return [replace(figure, name=f"cuda: {figure.name}") for figure in found]


def describe_gpu() -> dict[str, object]:
    """Model, memory, compute capability and multiprocessors of device 0; driver, CUDA and cuDNN."""
    import torch

    if not torch.cuda.is_available():
        return {"gpu": "none"}
    device = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = (
        subprocess.run(query, capture_output=True, text=True, check=False).stdout
        if shutil.which("nvidia-smi")
        else ""
    )
    return {
        "gpu": device.name,
        "gpus": torch.cuda.device_count(),
        "gpu_memory_gib": round(device.total_memory / 2**30, 1),
        "compute_capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "driver": driver.strip().partition("\n")[0] or "unknown",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


if __name__ == "__main__":
    from benchmarks.run import main

    sys.exit(main(["--gpu", *sys.argv[1:]]))
