"""Measures how far the tensors of two checkpoints are apart, in an interpreter that has torch: `python measure.py A B`, run by `comparing`.

Reads names (JSON, one for each line) on standard input and answers each by one JSON row [name, max_abs, max_ulp, l2, reference_l2].
Checkpoints are loaded with `weights_only=True`, so no pickle is executed.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict


def main() -> None:
    """Measure the named tensors that both files hold with one dtype and shape."""
    import torch
    from _repro_gate.probe.distance import measure

    a, b = (_tensors(torch, path) for path in sys.argv[1:3])
    for line in sys.stdin:
        name = json.loads(line)
        if name in a and name in b and a[name].dtype == b[name].dtype and a[name].shape == b[name].shape:
            print(json.dumps([name, *measure(torch, a[name], b[name])]), flush=True)


def _tensors(torch: Any, path: str) -> Dict[str, Any]:
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return dict(load_file(path))
    from _repro_gate.probe.names import leaves

    return {
        name: value for name, value in leaves(torch.load(path, map_location="cpu", weights_only=True)) if isinstance(value, torch.Tensor)
    }


if __name__ == "__main__":
    import os
    import types

    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["_repro_gate"] = package
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(os.path.abspath(__file__))]
    main()
