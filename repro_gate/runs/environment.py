"""The environment of a training process: variables on an allow-list, the arm's variables,
`train.env`, and the probe.

No token of any kind passes: a variable that is not named here is dropped, and one whose name looks
like a secret is dropped even if its prefix is named. `train.env` is text of the checkout itself, so
it is passed unchanged.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from repro_gate.runs.arms import Arm
from repro_gate.runs.flags import IN_ENVIRONMENT
from repro_gate.trace.format import CONFIG_VARIABLE, SECRET

# of an environment, by name
Variables: TypeAlias = Mapping[str, str]
_XXHASH = importlib.util.find_spec("xxhash._xxhash")
# The gate's own xxhash extension. The probe loads it if it fits the training's interpreter.
EXTENSION = _XXHASH.origin if _XXHASH is not None else None
CONFIGURATION = "probe.json"  # of the probe, in the run folder
INJECT = Path(__file__).resolve().parent.parent / "probe" / "inject"

_ALLOWED = re.compile(
    "PATH|LANG|LANGUAGE|TZ|SHELL|USER|LOGNAME|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|SSL_CERT_FILE"
    "|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|PYTHONHASHSEED|CC|CXX"
    # Enough for an `srun` of the training's own. With more of them it would take itself for a task
    # of the gate's.
    "|SLURM_CONF|SLURM_JOB_?ID|SLURM_JOB_NODELIST|SLURMD_NODENAME|NODE_NAME"
    "|(?:LC|CUDA|NVIDIA|ROCR|HIP|HSA|MIOPEN|OMP|KMP|GOMP|MKL|OPENBLAS|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|CUBLAS|CUDNN|NCCL|GLOO"
    "|UCX|FI|NVTE|XLA|FLASH_ATTENTION|PYENV)_.*"
)
# All runs of the shell's user share these folders, so a run could read what another one wrote.
_CACHES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "CUDA_CACHE_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
    "MIOPEN_USER_DB_PATH",
)


def training_environment(
    outer: Variables,
    arm: Arm,
    train_env: Variables,
    run_folder: Path,
    device: str | None = None,
    *,
    probed: bool = True,
) -> dict[str, str]:
    """Return the whole environment of one run. Later layers win: allow-list, arm, device,
    `train.env`, the run's own folders. The probe starts only if `probed`. The shell's own flags
    hold in the arm `default` alone."""
    dropped = _CACHES if arm.name == "default" else (*IN_ENVIRONMENT, *_CACHES)
    environment = {
        name: value
        for name, value in outer.items()
        if _ALLOWED.fullmatch(name) and not SECRET.search(name) and name not in dropped
    }
    environment |= arm.environment
    if "OMP_NUM_THREADS" in train_env:
        # torch would prefer the shell's MKL_NUM_THREADS to that OMP_NUM_THREADS
        environment.pop("MKL_NUM_THREADS", None)
    if device == "cpu":
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    environment = {"PATH": os.defpath, **environment, **train_env}
    if probed:
        path = [str(INJECT), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {
            "PATH": f"{run_folder / 'bin'}{os.pathsep}{environment['PATH']}",
            "PYTHONPATH": os.pathsep.join(path),
            CONFIG_VARIABLE: str(run_folder / CONFIGURATION),
        }
    return environment | {
        "HOME": str(run_folder / "home"),
        "TMPDIR": str(run_folder / "tmp"),
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }


def thread_count(outer: Variables) -> str:
    """Return the number of threads that a training gets unless it sets its own: a property of the
    machine."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    counts = dict.fromkeys(filter(None, map(outer.get, names)))
    return " and ".join(counts) or str(usable_processors())


def usable_processors() -> int:
    """Return the number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SHIM = """#!/bin/sh
case "$PYTHONPATH:" in "{inject}:"*) ;; *) PYTHONPATH="{inject}${{PYTHONPATH:+:$PYTHONPATH}}"; export PYTHONPATH ;; esac
{variable}="{config}"; export {variable}
exec "{real}" "$@"
"""  # noqa: E501


def write_shims(run_folder: Path, outer_path: str) -> None:
    """Put `python`, `python3`, … first on PATH as short scripts that restore the probe and then
    start the real interpreter. Thus a shell command such as `PYTHONPATH=src python train.py` is
    traced too. `sys.executable` is still the real interpreter.
    """
    folder = run_folder / "bin"
    folder.mkdir(exist_ok=True)
    names = {"python", "python3"} | {f"python3.{minor}" for minor in range(9, 20)}
    for name in sorted(names):
        real = shutil.which(name, path=outer_path)
        if real is None:
            continue
        text = _SHIM.format(
            inject=INJECT,
            variable=CONFIG_VARIABLE,
            config=run_folder / CONFIGURATION,
            real=os.path.abspath(real),
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
