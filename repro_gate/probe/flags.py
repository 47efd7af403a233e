"""Sets the determinism flags that live in the process, reads every flag back, and notes the line of
training code that undoes one.

Flags are set right after torch came in and read at the end of every step. Those that live in the
environment are set by the gate before the process starts and only read here. What each does:
`docs/flags.md`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from ..trace.format import MAX_NAME
from . import facts, session, source_line
from .factors.use import is_pinned
from .patch import held, wrap
from .process import distributed

ALGORITHMS = "torch.use_deterministic_algorithms"
WARN_ONLY = "torch.use_deterministic_algorithms.warn_only"
FILL = "torch.utils.deterministic.fill_uninitialized_memory"
CUDNN = "torch.backends.cudnn.deterministic"
BENCHMARK = "torch.backends.cudnn.benchmark"
MKLDNN = "torch.backends.mkldnn.deterministic"
INDUCTOR = "torch._inductor.config.deterministic"
MKL_EARLY = "mkl.early_first_call"

# flag -> the setter in torch._C that every public way of setting it goes through
_SETTERS = {
    ALGORITHMS: "_set_deterministic_algorithms",
    FILL: "_set_deterministic_fill_uninitialized_memory",
    CUDNN: "_set_cudnn_deterministic",
    BENCHMARK: "_set_cudnn_benchmark",
    MKLDNN: "_set_mkldnn_deterministic",
}
HASH_SEED = "PYTHONHASHSEED"  # read as Python starts
_GIVEN: dict[str, str] = {}  # variables as the gate set them

# packages between a flag's setter and who set it
_BETWEEN = "torch", __name__.partition(".")[0]
_EARLY: list[bool] = []  # one item once the early call was made
_PROPERTIES = {
    CUDNN: ("cudnn", "deterministic"),
    BENCHMARK: ("cudnn", "benchmark"),
    MKLDNN: ("mkldnn", "deterministic"),
}


def apply(torch: Any, arm: dict[str, Any]) -> None:
    """Set the flags of this process as the arm has them; one that this torch does not have is left
    out (and is then missing in the reading)."""
    if ALGORITHMS in arm:
        torch.use_deterministic_algorithms(arm[ALGORITHMS])
        # torch's own default is on, so a flag that the spec leaves off has to be switched off
        torch.utils.deterministic.fill_uninitialized_memory = arm.get(FILL, False)
    for flag, (backend, name) in _PROPERTIES.items():
        module = getattr(torch.backends, backend)
        if flag in arm and hasattr(module, name):
            setattr(module, name, arm[flag])
    if held("torch.backends.mkl").is_available() and arm.get(MKL_EARLY):
        # one element stays on this thread: two threads in the process's first call race
        # (docs/causes/README.md)
        torch.ones(1).sqrt()
        _EARLY[:] = [True]


def switch(torch: Any, plan: dict[str, Any], step: int) -> None:
    """Set the flags of the arm whose turn comes with this step. Each block of turns has its own
    order, which follows from the plan's seed: all ranks have the same."""
    arms = plan["arms"]
    block, turn = divmod(step // plan["cycle"], len(arms))
    own = random.Random(f"{plan['seed']} {block}")  # noqa: S311  no secret
    apply(torch, own.sample(arms, len(arms))[turn])


def read(torch: Any, variables: Sequence[str]) -> dict[str, Any]:
    """Return every flag as it stands now, `variables` being the environment's. Takes about ten
    microseconds."""
    settings: dict[str, Any] = {
        ALGORITHMS: torch.are_deterministic_algorithms_enabled(),
        WARN_ONLY: torch.is_deterministic_algorithms_warn_only_enabled(),
        FILL: torch.utils.deterministic.fill_uninitialized_memory,
    }
    for flag, (backend, name) in _PROPERTIES.items():
        module = getattr(torch.backends, backend)
        if hasattr(module, name):
            settings[flag] = getattr(module, name)
    if held("torch.backends.mkl").is_available():
        settings[MKL_EARLY] = bool(_EARLY)
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and "deterministic" in getattr(inductor, "_config", {}):
        settings[INDUCTOR] = bool(inductor.deterministic)
    precision = "mixed"  # the newer and the older switches, by the training
    with contextlib.suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    settings["torch.get_float32_matmul_precision"] = precision
    settings["torch.get_num_threads"] = torch.get_num_threads()
    settings.update((name, os.environ.get(name)) for name in variables)
    return settings


def watch(torch: Any, arm: dict[str, Any]) -> None:
    """Note, from here on, the line that sets a flag to another value than the arm's. The training's
    choice stands: the gate says so and fails."""
    for flag, setter in _SETTERS.items():
        if flag not in arm:
            continue
        watched = wrap(torch._C, setter, functools.partial(_set, flag, arm[flag]))
        if watched is not None and flag in _PROPERTIES:
            # `torch.backends.cudnn.deterministic = …` holds a reference of its own
            backend, name = _PROPERTIES[flag]
            context: Any = vars(type(getattr(torch.backends, backend))).get(name)
            if hasattr(context, "setter"):
                context.setter = watched


def remember(variables: Sequence[str]) -> None:
    """Remember what the environment holds of `variables` as this process starts."""
    _GIVEN.update((name, os.environ[name]) for name in variables if name in os.environ)
    _GIVEN.pop(HASH_SEED, None)


def variable_set(name: Any, value: Any = None) -> None:
    """Note that the training is about to set a variable to another value than the gate's, or to
    delete it (None)."""
    flag = os.fsdecode(name)
    text = "None" if value is None else os.fsdecode(value)
    if flag in _GIVEN and text != _GIVEN[flag]:
        _undone(flag, text, source_line.nearest(sys._getframe(1)), _was_read(flag))


def _undone(flag: str, value: str, site: tuple[str, int], late: bool) -> None:
    current = session.current()
    place = {"file": site[0][:MAX_NAME], "line": site[1], "step": current.step}
    current.notice("undone", flag=flag, value=value[:200], late=late, **place)


def _was_read(variable: str) -> bool:
    """Return whether its library has read a variable in this process, and will not again. cuBLAS
    reads with its first handle, NCCL with its first communicator, both of which the first step
    made; MKL with its first call, Inductor as it is imported. The others read at each call."""
    stepped = session.current().step > 0
    if variable == "MKL_CBWR":
        return bool(_EARLY)
    if variable == "TORCHINDUCTOR_DETERMINISTIC":
        return "torch._inductor.config" in sys.modules
    if variable == "CUBLAS_WORKSPACE_CONFIG":
        return stepped and facts.used()
    return variable.startswith("NCCL_") and stepped and distributed() is not None


def _set(
    flag: str,
    expected: Any,
    original: Any,
    value: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    warn_only = bool(kwargs.get("warn_only"))
    if value != expected or warn_only:
        site = _caller()
        _undone(flag, "warn_only" if warn_only and value else str(value), site, False)
        if is_pinned("flags", site):
            return original(expected, *args)
    return original(value, *args, **kwargs)


def _caller() -> tuple[str, int]:
    """Return the nearest line of the workspace on the stack; else the nearest one outside torch."""
    frame: FrameType | None = sys._getframe(3)
    site = source_line.nearest(frame)
    while frame is not None and not site[0]:
        if source_line.module_of(frame).partition(".")[0] not in _BETWEEN:
            site = os.path.realpath(frame.f_code.co_filename), frame.f_lineno
        frame = frame.f_back
    return site
