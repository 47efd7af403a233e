"""Conditions: which flags, environment and seed a run is started under, and which values count as effective when read back.

Pure data and functions; the flags' names are those of `docs/flags.md` and of `determinism.allow` in the spec. Sources: PyTorch's notes on
reproducibility, NVIDIA's cuBLAS and NCCL documentation, the READMEs of flash-attention, Transformer Engine, mamba and causal-conv1d.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

FlagValue = bool | str

FILL = "torch.utils.deterministic.fill_uninitialized_memory"
# Set by the probe in the process, right after torch came in.
IN_PROCESS: Mapping[str, FlagValue] = {
    "torch.use_deterministic_algorithms": True,
    FILL: True,
    "torch.backends.cudnn.deterministic": True,
    "torch.backends.cudnn.benchmark": False,
    "torch.backends.mkldnn.deterministic": True,
}
# Must stand in the environment before the process starts.
IN_ENVIRONMENT: Mapping[str, str] = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "MKL_CBWR": "AUTO",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "MAMBA_DETERMINISTIC": "1",
    "CAUSAL_CONV1D_DETERMINISTIC": "1",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}
# Other values that do the same: what training, or `train.env`, may set instead.
ALSO_EFFECTIVE: Mapping[str, frozenset[str]] = {
    "CUBLAS_WORKSPACE_CONFIG": frozenset({":16:8"}),
    "MKL_CBWR": frozenset({"COMPATIBLE", "SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1", "AUTO,STRICT", "AVX2,STRICT", "AVX512,STRICT"}),
    "NCCL_ALGO": frozenset({"Tree", "CollnetDirect", "CollnetChain", "NVLS"}),
    "NCCL_PROTO": frozenset({"LL", "LL128"}),
}
# Read back where present; torch._inductor sets its own from TORCHINDUCTOR_DETERMINISTIC once it is loaded.
ONLY_READ = "torch._inductor.config.deterministic"
HASH_SEED = "PYTHONHASHSEED"  # the seed; no value of it is wrong, since what counts is what the process was started with
# What only a training on CUDA calls: cuDNN, cuBLAS, NCCL and libraries of CUDA kernels.
CUDA_ONLY = frozenset(
    {
        "torch.backends.cudnn.deterministic",
        "torch.backends.cudnn.benchmark",
        "CUBLAS_WORKSPACE_CONFIG",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "FLASH_ATTENTION_DETERMINISTIC",
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "MAMBA_DETERMINISTIC",
        "CAUSAL_CONV1D_DETERMINISTIC",
    }
)
WARN_ONLY = "torch.use_deterministic_algorithms.warn_only"
FLAGS = (*IN_PROCESS, ONLY_READ, *IN_ENVIRONMENT, HASH_SEED)
VARIABLES = (*IN_ENVIRONMENT, HASH_SEED)


@dataclass(frozen=True)
class Arm:
    """What a run is started under. `flags` are set in the process, `environment` before it; `steps` overrides the spec's where set."""

    name: str  # `deterministic`, `default`, `reseeded`, `pinned`
    seed: int
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None


def deterministic(seed: int, allow: frozenset[str], steps: int | None) -> Arm:
    """Every flag on, but those that the spec leaves off."""
    allow |= {"TORCHINDUCTOR_DETERMINISTIC"} if ONLY_READ in allow else set()
    return Arm(
        "deterministic",
        seed,
        {name: value for name, value in IN_PROCESS.items() if name not in allow},
        _seeded(seed) | {name: value for name, value in {**IN_ENVIRONMENT, **_hash_seed(seed)}.items() if name not in allow},
        steps,
    )


def default(seed: int, steps: int | None) -> Arm:
    """The flags off, the same seed: what the training does in a user's shell, where nothing fixes `PYTHONHASHSEED`."""
    return Arm("default", seed, {}, _seeded(seed), steps)


def pinned(seed: int, steps: int) -> Arm:
    """As `default`, with `PYTHONHASHSEED` as the deterministic runs have it: whether that alone gives their numbers."""
    return Arm("pinned", seed, {}, _seeded(seed) | _hash_seed(seed), steps)


def reseeded(seed: int, allow: frozenset[str], steps: int) -> Arm:
    """The flags on and another seed, for a few steps: the control that must differ."""
    other = deterministic(other_seed(seed), allow, steps)
    return Arm("reseeded", other.seed, other.flags, other.environment, steps)


def other_seed(seed: int) -> int:
    """Another seed for the control, one that fits wherever the first did (a C `int`, say)."""
    return seed + 1 if seed < 2**31 - 1 else seed - 1


def not_effective(settings: Mapping[str, object], arm: Arm) -> dict[str, object]:
    """Flags of the arm that a reading (`settings`) shows at another value: {flag: value as read}.

    A flag that the reading lacks is one that this torch does not have. `warn_only` keeps nondeterministic kernels, so it counts as off.
    """
    wrong: dict[str, object] = {}
    for name, wanted in {**arm.flags, **arm.environment}.items():
        if name == HASH_SEED or name not in settings:
            continue
        value = settings[name]
        if value != wanted and str(value) not in ALSO_EFFECTIVE.get(name, frozenset()):
            wrong[name] = value
    if "torch.use_deterministic_algorithms" in arm.flags and settings.get(WARN_ONLY):
        wrong[WARN_ONLY] = True
    if "TORCHINDUCTOR_DETERMINISTIC" in arm.environment and settings.get(ONLY_READ, True) is not True:
        wrong[ONLY_READ] = settings[ONLY_READ]
    return wrong


def wanted(name: str, arm: Arm) -> FlagValue | None:
    """The value that the arm has for a flag, or for what is read back in its place."""
    derived = {WARN_ONLY: False, ONLY_READ: True}
    return derived.get(name, arm.flags.get(name, arm.environment.get(name)))


def moot(name: str, facts: Mapping[str, str], settings: Mapping[str, object]) -> str:
    """Why a flag means nothing to a process with these facts and this reading; empty where its library was used, or may have been."""
    if name in CUDA_ONLY and facts.get("device", "").startswith("cpu"):
        return "no CUDA device was used"
    if name.startswith("NCCL_") and facts.get("gpus") == "1" and facts.get("process") == "main":
        return "one process used one GPU"
    if name == "TORCHINDUCTOR_DETERMINISTIC" and ONLY_READ not in settings:
        return "torch.compile was not used"
    return ""


def _seeded(seed: int) -> dict[str, str]:
    return {"PL_GLOBAL_SEED": str(seed), "PL_SEED_WORKERS": "1"}


def _hash_seed(seed: int) -> dict[str, str]:
    return {HASH_SEED: str(seed % 2**32)}


def usable_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
