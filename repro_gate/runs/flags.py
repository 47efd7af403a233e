"""The determinism flags with their values, and when a flag matters to a training. Their names are
those of `docs/flags.md` and of `determinism.allow` in the spec. Sources: PyTorch's notes on
reproducibility, NVIDIA's cuBLAS and NCCL documentation, the READMEs of flash-attention, Transformer
Engine, mamba and causal-conv1d.
"""

from __future__ import annotations

from collections.abc import Mapping

FlagValue = bool | str

ALGORITHMS = "torch.use_deterministic_algorithms"
FILL = "torch.utils.deterministic.fill_uninitialized_memory"
CUDNN = "torch.backends.cudnn.deterministic"
MKLDNN = "torch.backends.mkldnn.deterministic"
# The probe sets these in the process, right after torch is imported.
IN_PROCESS: Mapping[str, FlagValue] = {
    ALGORITHMS: True,
    FILL: True,
    CUDNN: True,
    "torch.backends.cudnn.benchmark": False,
    MKLDNN: True,
    "mkl.early_first_call": True,
}
# Those that can be switched between two steps -> what a training that leaves one off gives up.
# cuDNN's `benchmark` is not among them: torch itself leaves it off.
SWITCHED: Mapping[str, str] = {
    ALGORITHMS: "operators that repeat their bits",
    FILL: "known contents of memory that is read before it is written",
    CUDNN: "cuDNN kernels that repeat their bits",
    MKLDNN: "oneDNN primitives that repeat their bits",
}
# These must be in the environment before the process starts.
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
    # What would choose kernels by timing them. Inductor's deterministic mode (torch 2.10) does not,
    # whatever these say.
    "TORCHINDUCTOR_MAX_AUTOTUNE": "0",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM": "0",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": "0",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": "0",
    "PYTORCH_TUNABLEOP_TUNING": "0",
}
# Other values with the same effect, which the training or `train.env` may set instead.
ALSO_EFFECTIVE: Mapping[str, tuple[str, ...]] = {
    "CUBLAS_WORKSPACE_CONFIG": (":16:8",),
    "MKL_CBWR": (
        "COMPATIBLE",
        "SSE4_2",
        "AVX",
        "AVX2",
        "AVX512",
        "AVX512_E1",
        "AUTO,STRICT",
        "AVX2,STRICT",
        "AVX512,STRICT",
    ),
    "NCCL_PROTO": ("LL", "LL128"),
}
# NCCL's algorithms that add in the switches of NVLink, and in those of the network (SHARP); all.
_NVLS = {"nvls", "nvlstree"}
_COLLNET = {"collnet", "collnetdirect", "collnetchain"}
_ALGORITHMS = {"ring", "tree", "pat", *_NVLS, *_COLLNET}
# Read back if present. torch._inductor sets its flag from TORCHINDUCTOR_DETERMINISTIC when it is
# loaded.
ONLY_READ = "torch._inductor.config.deterministic"
# The value is the seed. No later value is wrong, since only the value at the process's start
# counts.
HASH_SEED = "PYTHONHASHSEED"
# What only a training on CUDA calls: cuDNN, cuBLAS, NCCL and libraries of CUDA kernels.
CUDA_ONLY = frozenset(
    [
        CUDNN,
        "torch.backends.cudnn.benchmark",
        "CUBLAS_WORKSPACE_CONFIG",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "FLASH_ATTENTION_DETERMINISTIC",
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "MAMBA_DETERMINISTIC",
        "CAUSAL_CONV1D_DETERMINISTIC",
        "PYTORCH_TUNABLEOP_TUNING",
    ]
)
WARN_ONLY = "torch.use_deterministic_algorithms.warn_only"
FLAGS = (*IN_PROCESS, ONLY_READ, *IN_ENVIRONMENT, HASH_SEED)
VARIABLES = (*IN_ENVIRONMENT, HASH_SEED)


def moot(name: str, facts: Mapping[str, str], settings: Mapping[str, object]) -> str:
    """Return why a flag has no effect in a process with these facts and this reading; empty if its
    library was or may have been used."""
    if name in CUDA_ONLY and facts.get("device", "").startswith("cpu"):
        return "no CUDA device was used"
    if (
        name.startswith("NCCL_")
        and facts.get("gpus") == "1"
        and facts.get("process") == "main"
    ):
        return "one process used one GPU"
    if name == "TORCHINDUCTOR_DETERMINISTIC" and ONLY_READ not in settings:
        return "torch.compile was not used"
    return ""


def in_network(algo: str, settings: Mapping[str, object]) -> str:
    """Return why a value of `NCCL_ALGO` does not fix the order of additions; empty if it does.
    `settings` may hold `NCCL_NVLS_ENABLE` and `NCCL_COLLNET_ENABLE`.

    The value is `[FUNCTION:][^]ALGORITHM[,…][;…]` in any case; `^` allows all but those. A function
    that is not named may take any: NVLS is on by default, CollNet is not. NCCL takes NVLSTree only
    between nodes, so `^NVLS`, which torch itself sets, counts as both.
    """
    default = _ALGORITHMS - (
        _NVLS if settings.get("NCCL_NVLS_ENABLE") == "0" else set()
    )
    if settings.get("NCCL_COLLNET_ENABLE", "0") == "0":
        default -= _COLLNET
    for function in (
        "allreduce",
        "reducescatter",
    ):  # the others have no such algorithm, or do not add
        allowed = default
        for entry in algo.lower().split(";"):
            named, _, names = entry.rpartition(":")
            listed = {*names.removeprefix("^").split(",")}
            if not listed <= _ALGORITHMS:
                return "NCCL does not know it"
            if named in ("", function):
                also = _NVLS if "nvls" in listed else set()
                allowed = default - listed - also if names[0] == "^" else listed
        for name in sorted(allowed & (_NVLS | _COLLNET)):
            return f"with it {function} may add in the network's switches ({name}), in any order"
    return ""
