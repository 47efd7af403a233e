"""What is known to lie outside the inputs of the config hash: what is looked at first where the same config hash gives other bits.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from repro_gate.compare.traces import processes
from repro_gate.runs.arms import VARIABLES

if TYPE_CHECKING:
    from repro_gate.runs.launch import Run

MAX_VALUE = 500  # characters of one fact

_OF_ONE_RUN = frozenset(
    {"PYTHONHASHSEED", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "HOME", "TMPDIR", "TMP", "TEMP", "PATH", "PYTHONPATH", "PWD", "USER", "LOGNAME"}
    | {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}  # the input `threads`
    | {"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_RUN_ID", "HOSTNAME"}
)
_PLACE = re.compile(r"repro-gate-(?:[A-Za-z0-9_]{8}|\d+-\d+)(/|$)")  # the temporary folder of one gate run


def outside_facts(run: Run, machine: Mapping[str, str]) -> dict[str, str]:
    """Facts by name, sorted: `distribution/numpy` for what was imported, `variable/CUDA_MODULE_LOADING` for what torch or CUDA read from
    the environment (without flags, which are inputs, and without what is of one run or one process), and what `read_machine` says of the
    machine as far as it is no input: `kernel`, `libc`, `os`, on a GPU `cpu-model` and `gpu.0.ecc`. A fact on which the processes of the run
    do not agree is left out.
    """
    seen: dict[str, set[str]] = {}
    for trace in processes(run.traces).values():
        for name, version in (trace.distributions or {}).items():
            seen.setdefault(f"distribution/{name}", set()).add(version)
        for name, value in trace.variables.items():
            if name not in _OF_ONE_RUN and name not in VARIABLES and not _PLACE.search(value):
                seen.setdefault(f"variable/{name}", set()).add(value)
    on_gpu = any(trace.facts.get("device", "").startswith("cuda") for trace in run.traces)
    seen |= {name: {value} for name, value in machine.items() if _is_outside(name, on_gpu)}
    return {name: next(iter(values))[:MAX_VALUE] for name, values in sorted(seen.items()) if len(values) == 1}


def _is_outside(name: str, on_gpu: bool) -> bool:
    """Whether a fact of the machine is no input of the platform, and of the device that trained."""
    if name == "driver" or name.startswith("gpu."):
        return on_gpu and name != "driver" and not name.endswith(".model")
    return on_gpu or name != "cpu-model"
