"""The environment variables that torch, CUDA and their libraries read, as they stand when training begins."""

from __future__ import annotations

import os
import re
from typing import Dict

from ..trace.format import MAX_NAME, MAX_VARIABLES

_PREFIXES = (
    "TORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "PYTORCH_",
    "ATEN_",
    "C10_",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "CUBLASLT_",
    "NVIDIA_",
    "NVTE_",
    "NVFUSER_",
    "NCCL_",
    "GLOO_",
    "UCX_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "MKLDNN_",
    "ONEDNN_",
    "DNNL_",
    "OPENBLAS_",
    "BLIS_",
    "TRITON_",
    "FLASH_ATTENTION_",
    "HIP_",
    "HSA_",
    "ROCR_",
    "ROCBLAS_",
    "MIOPEN_",
    "XLA_",
    "MALLOC_",
    "TBB_",
)
_NAMES = frozenset(
    {
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "GLIBC_TUNABLES",
        "PYTHONHASHSEED",
        "PYTHONOPTIMIZE",
        "MAMBA_DETERMINISTIC",
        "CAUSAL_CONV1D_DETERMINISTIC",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "PL_GLOBAL_SEED",
        "PL_SEED_WORKERS",
    }
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|COOKIE|AUTH", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/\s]*@")


def library_variables() -> Dict[str, str]:
    """Name and value, by name. What looks like a secret, by its name or as a login in an address, is left out."""
    read = sorted(
        (name, value)
        for name, value in os.environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name) and not _LOGIN.search(value)
    )
    return {name[:200]: value.encode("utf-8", "backslashreplace").decode()[:MAX_NAME] for name, value in read[:MAX_VARIABLES]}
