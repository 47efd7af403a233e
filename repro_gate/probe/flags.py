"""Sets the determinism flags that live in the process, reads every flag back, and notes the line of
training code that undoes one.

Flags are set right after torch came in and read at the end of every step. Those that live in the
environment are set by the gate before the process starts and only read here. What each does:
`docs/flags.md`.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from ..trace.format import MAX_NAME
from . import factors, facts, session, source_line
from .patch import wrap

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
_GIVEN: Dict[str, str] = {}  # variables as the gate set them
_NOTED: Set[Tuple[str, str, str, int, int]] = set()
_MOST_NOTED = 1_000
_EARLY: List[bool] = []  # one item once the early call was made
_PROPERTIES = {
    CUDNN: ("cudnn", "deterministic"),
    BENCHMARK: ("cudnn", "benchmark"),
    MKLDNN: ("mkldnn", "deterministic"),
}


def apply(torch: Any, wanted: Dict[str, Any]) -> None:
    """Set the wanted flags of this process; a flag that this torch does not have is left out (and
    is then missing in the reading)."""
    if ALGORITHMS in wanted:
        torch.use_deterministic_algorithms(wanted[ALGORITHMS])
    for flag, (backend, name) in _PROPERTIES.items():
        module = getattr(torch.backends, backend)
        if flag in wanted and hasattr(module, name):
            setattr(module, name, wanted[flag])
    # torch's own default is on, so a flag that the spec leaves off has to be switched off
    if ALGORITHMS in wanted:
        torch.utils.deterministic.fill_uninitialized_memory = wanted.get(FILL, False)
    if wanted.get(MKL_EARLY) and torch.backends.mkl.is_available():
        torch.ones(
            1
            # one element stays on this thread: two threads in the process's first call race
            # (docs/causes/README.md)
        ).sqrt()
        _EARLY[:] = [True]


def read(torch: Any, variables: Sequence[str]) -> Dict[str, Any]:
    """Every flag as it stands now, `variables` being the environment's. About ten microseconds."""
    settings: Dict[str, Any] = {
        ALGORITHMS: torch.are_deterministic_algorithms_enabled(),
        WARN_ONLY: torch.is_deterministic_algorithms_warn_only_enabled(),
        FILL: torch.utils.deterministic.fill_uninitialized_memory,
    }
    for flag, (backend, name) in _PROPERTIES.items():
        module = getattr(torch.backends, backend)
        if hasattr(module, name):
            settings[flag] = getattr(module, name)
    if torch.backends.mkl.is_available():
        settings[MKL_EARLY] = bool(_EARLY)
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and "deterministic" in getattr(inductor, "_config", {}):
        settings[INDUCTOR] = bool(inductor.deterministic)
    settings["torch.get_float32_matmul_precision"] = _matmul_precision(torch)
    settings["torch.get_num_threads"] = torch.get_num_threads()
    for name in variables:
        settings[name] = os.environ.get(name)
    return settings


def watch(torch: Any, wanted: Dict[str, Any]) -> None:
    """From here on, note the line that sets a wanted flag to another value. The training's choice
    stands: the gate says so and fails."""
    home = os.path.dirname(os.path.abspath(torch.__file__))
    for flag, setter in _SETTERS.items():
        if flag in wanted:
            watched = wrap(torch._C, setter, functools.partial(_set, flag, wanted[flag], home))
            backend, name = _PROPERTIES.get(flag, ("", ""))
            context: Any = (
                vars(type(getattr(torch.backends, backend))).get(name) if backend else None
            )
            if watched is not None and hasattr(context, "setter"):
                context.setter = (
                    watched  # `torch.backends.cudnn.deterministic = …` holds a reference of its own
                )


def given(variables: Sequence[str]) -> None:
    """Remember what the environment holds of `variables` as this process starts."""
    _GIVEN.update(
        {name: os.environ[name] for name in variables if name in os.environ and name != HASH_SEED}
    )


def variable_set(name: Any, value: Any = None) -> None:
    """The training is about to set a variable, or to delete it (None): noted where the gate gave it
    another value."""
    flag, said = os.fsdecode(name), "None" if value is None else os.fsdecode(value)
    if flag in _GIVEN and said != _GIVEN[flag]:
        (file, line), current = source_line.nearest(sys._getframe(1)), session.current()
        note = (flag, said[:200], file[:MAX_NAME], line, current.step)
        if note not in _NOTED and len(_NOTED) < _MOST_NOTED:
            _NOTED.add(note)
            current.event(
                "undone",
                **dict(zip(("flag", "value", "file", "line", "step"), note)),
                late=_was_read(flag, current.step),
            )


def _was_read(variable: str, step: int) -> bool:
    """Whether its library has read a variable in this process, and will not again. cuBLAS reads
    with its first handle, NCCL with its first communicator, both of which the first step made; MKL
    with its first call, Inductor as it is imported. The others read at each call."""
    torch = sys.modules.get("torch")
    if variable == "MKL_CBWR":
        return bool(_EARLY)
    if variable == "TORCHINDUCTOR_DETERMINISTIC":
        return "torch._inductor.config" in sys.modules
    if variable == "CUBLAS_WORKSPACE_CONFIG":
        return step > 0 and facts.started(torch)
    distributed: Any = sys.modules.get("torch.distributed")
    if not variable.startswith("NCCL_") or step <= 0 or distributed is None:
        return False
    return bool(distributed.is_available() and distributed.is_initialized())


def _set(
    flag: str, wanted: Any, home: str, original: Any, value: Any, *args: Any, **kwargs: Any
) -> Any:
    warn_only = bool(kwargs.get("warn_only"))
    if value != wanted or warn_only:
        file, line = _caller(home)
        said, current = str("warn_only" if warn_only and value else value), session.current()
        current.event(
            "undone",
            flag=flag,
            value=said[:200],
            file=file[:MAX_NAME],
            line=line,
            step=current.step,
        )
        uses = factors.uses()
        if uses is not None and uses.pinned("flags", (file, line)):
            return original(wanted, *args)
    return original(value, *args, **kwargs)


def _caller(home: str) -> Tuple[str, int]:
    """The nearest line of the workspace on the stack; else the nearest one outside torch."""
    frame: Optional[FrameType] = sys._getframe(3)
    file, line = source_line.nearest(frame)
    own = (home + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
    while frame is not None and not file:
        real = os.path.realpath(frame.f_code.co_filename)
        if not real.startswith(own):
            file, line = real, frame.f_lineno
        frame = frame.f_back
    return file, line


def _matmul_precision(torch: Any) -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # the newer and the older switches were mixed by the training
        return "mixed"
