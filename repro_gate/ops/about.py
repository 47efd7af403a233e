"""The machine and the torch that a catalog is of, as the training's interpreter sees them."""

from __future__ import annotations

import os
import platform
from typing import Any, Dict, List, Sequence

from . import documented


def describe(torch: Any, device: str, notes: Sequence[str]) -> Dict[str, Any]:
    """Plain values only. `notes`: what could not be listed, one sentence each."""
    kinds: List[str] = [entry.kind for entry in documented.entries(torch)]
    found: Dict[str, Any] = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": device,
        "threads": int(torch.get_num_threads()),
        "machine": platform.machine(),
        "cpu_capability": str(torch.backends.cpu.get_cpu_capability()),
        "mkl": bool(torch.backends.mkl.is_available()),
        "documented": {kind: kinds.count(kind) for kind in ("deterministic", "raises")},
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        "notes": list(notes),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = str(properties.name)
        found["multiprocessors"] = int(properties.multi_processor_count)
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = int(torch.backends.cudnn.version() or 0)
    return found
