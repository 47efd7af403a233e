"""Sets the determinism flags that live in the process, reads every flag back, and notes the line of
training code that undoes one.

Flags are set right after torch came in and read at the end of every step. Those that live in the
environment are set by the gate before the process starts and only read here. What each does:
`docs/flags.md`.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, Callable

from ..trace.format import MAX_NAME
from . import facts, imports, session, source_line
from .factors.use import is_pinned
from .patch import held, wrap
from .process import distributed

ALGORITHMS = "torch.use_deterministic_algorithms"
FILL = "torch.utils.deterministic.fill_uninitialized_memory"
CUDNN = "torch.backends.cudnn.deterministic"
BENCHMARK = "torch.backends.cudnn.benchmark"
MKLDNN = "torch.backends.mkldnn.deterministic"
INDUCTOR = "torch._inductor.config.deterministic"
MKL_EARLY = "mkl.early_first_call"
ATTENTION = "FLASH_ATTENTION_DETERMINISTIC"

# flag -> the setter in torch._C that every public way of setting it goes through
_SETTERS = {
    ALGORITHMS: "_set_deterministic_algorithms",
    FILL: "_set_deterministic_fill_uninitialized_memory",
    CUDNN: "_set_cudnn_deterministic",
    BENCHMARK: "_set_cudnn_benchmark",
    MKLDNN: "_set_mkldnn_deterministic",
}
# What is read: the getter in torch._C, which starts no CUDA, its arguments, and the public name;
# first the flags, then what changes numbers, if not whether they repeat.
_READ = """
_get_deterministic_algorithms = torch.use_deterministic_algorithms
_get_deterministic_algorithms_warn_only = torch.use_deterministic_algorithms.warn_only
_get_deterministic_fill_uninitialized_memory = torch.utils.deterministic.fill_uninitialized_memory
_get_cudnn_deterministic = torch.backends.cudnn.deterministic
_get_cudnn_benchmark = torch.backends.cudnn.benchmark
_get_mkldnn_deterministic = torch.backends.mkldnn.deterministic
_get_float32_matmul_precision = torch.get_float32_matmul_precision
_get_fp32_precision_getter generic all = torch.backends.fp32_precision
_get_fp32_precision_getter mkldnn all = torch.backends.mkldnn.fp32_precision
_get_fp32_precision_getter mkldnn matmul = torch.backends.mkldnn.matmul.fp32_precision
_get_fp32_precision_getter mkldnn conv = torch.backends.mkldnn.conv.fp32_precision
_get_fp32_precision_getter mkldnn rnn = torch.backends.mkldnn.rnn.fp32_precision
"""
# Likewise, of what only a training on CUDA calls.
_READ_ON_CUDA = """
_get_cublas_allow_tf32 = torch.backends.cuda.matmul.allow_tf32
_get_cublas_allow_fp16_reduced_precision_reduction = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
_get_cublas_allow_bf16_reduced_precision_reduction = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
_get_cublas_allow_fp16_accumulation = torch.backends.cuda.matmul.allow_fp16_accumulation
_get_fp32_precision_getter cuda matmul = torch.backends.cuda.matmul.fp32_precision
_get_cudnn_allow_tf32 = torch.backends.cudnn.allow_tf32
_get_fp32_precision_getter cuda all = torch.backends.cudnn.fp32_precision
_get_fp32_precision_getter cuda conv = torch.backends.cudnn.conv.fp32_precision
_get_fp32_precision_getter cuda rnn = torch.backends.cudnn.rnn.fp32_precision
_get_blas_preferred_backend = torch.backends.cuda.preferred_blas_library
_get_linalg_preferred_backend = torch.backends.cuda.preferred_linalg_library
_get_flash_sdp_enabled = torch.backends.cuda.flash_sdp_enabled
_get_mem_efficient_sdp_enabled = torch.backends.cuda.mem_efficient_sdp_enabled
_get_math_sdp_enabled = torch.backends.cuda.math_sdp_enabled
_get_cudnn_sdp_enabled = torch.backends.cuda.cudnn_sdp_enabled
_get_math_sdp_allow_fp16_bf16_reduction = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed
"""  # noqa: E501
# Variables that decide what NCCL may do with its algorithms; read where they are set.
_OF_NCCL = ("NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_TUNER_PLUGIN")
# Inductor's switches that choose kernels by timing -> the variables that turn them off, in a torch
# without Inductor's deterministic mode. A mode of `torch.compile` turns them on again.
_TIMED = {
    name: f"TORCHINDUCTOR_{name.upper()}"
    for name in (
        "max_autotune",
        "max_autotune_gemm",
        "max_autotune_pointwise",
        "coordinate_descent_tuning",
    )
}
_ON: dict[str, str] = {}  # of these variables, those that a mode turned on
_FLASH = (
    "flash_attn.flash_attn_interface",
    "flash_attn_3.flash_attn_interface",
    "flash_attn_interface",
    "flash_attn.cute.interface",
)
HASH_SEED = "PYTHONHASHSEED"  # read as Python starts
_GIVEN: dict[str, str] = {}  # variables as the gate set them
_VARIABLES: dict[str, Any] = {}  # as they were read since one changed

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


@functools.lru_cache(maxsize=None)
def _getters(torch: Any, table: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return the names of a table, and their getters, as far as this torch has them."""
    found: list[tuple[str, Callable[[], Any]]] = []
    for line in table.split("\n")[1:-1]:
        call, _, name = line.partition(" = ")
        getter, *args = call.split()
        if function := getattr(torch._C, getter, None):
            found.append((name, functools.partial(function, *args)))
    return found


def read(torch: Any, variables: Sequence[str]) -> dict[str, Any]:
    """Return every flag as it stands now, `variables` being the environment's. Takes about ten
    microseconds."""
    settings: dict[str, Any] = {}
    for table in (_READ, _READ_ON_CUDA) if facts.started() else (_READ,):
        for name, getter in _getters(torch, table):
            try:
                value = getter()
            except RuntimeError:
                value = "mixed"  # the newer and the older switches, by the training
            if value != "none":  # a newer switch that nobody set
                plain = isinstance(value, (bool, str))
                settings[name] = value if plain else str(getattr(value, "name", value))
    if held("torch.backends.mkl").is_available():
        settings[MKL_EARLY] = bool(_EARLY)
    settings["torch.get_num_threads"] = torch.get_num_threads()
    if not _VARIABLES:
        set_ = [name for name in _OF_NCCL if name in os.environ]
        _VARIABLES.update((name, os.environ.get(name)) for name in (*variables, *set_))
    settings.update(_VARIABLES)
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and "deterministic" in getattr(inductor, "_config", {}):
        settings[INDUCTOR] = bool(inductor.deterministic)
    if inductor is None or settings.get(INDUCTOR):
        for name in _TIMED.values():
            settings.pop(name, None)
    else:
        on = {_TIMED[name]: "1" for name in _TIMED if getattr(inductor, name, False)}
        settings.update({**on, **_ON})
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
    if arm:
        wrap(torch._TorchCompileInductorWrapper, "__init__", _compiler_made)
    if arm and _GIVEN.get(ATTENTION) == "1":
        for name in _FLASH:
            imports.after_import(name, _attention_arrived)


def _compiler_made(original: Any, compiler: Any, *args: Any, **kwargs: Any) -> None:
    """Note the line that lets Inductor choose kernels by timing, in this model."""
    original(compiler, *args, **kwargs)
    inductor = sys.modules.get("torch._inductor.config")
    for name, variable in _TIMED.items():
        if compiler.config.get(name) and not getattr(inductor, "deterministic", False):
            site = source_line.nearest(sys._getframe(1))
            _undone(variable, "1", site, False)
            if is_pinned("flags", site):
                compiler.config[name] = False
            else:
                _ON[variable] = "1"


def _attention_arrived(module: Any) -> None:
    """Let each function of flash-attention that has the argument be deterministic, unless its
    caller says otherwise."""
    for name, function in list(vars(module).items()):
        if name.startswith("flash_attn_") and inspect.isfunction(function):
            names = inspect.signature(function).parameters
            if "deterministic" in names:
                setattr(module, name, _attending(function, [*names]))


def _attending(original: Any, names: list[str]) -> Any:
    compiler = sys.modules["torch"].compiler

    @functools.wraps(original)
    def attend(*args: Any, **kwargs: Any) -> Any:  # torch.compile traces it
        given = {"deterministic": True, **dict(zip(names, args)), **kwargs}
        if not given["deterministic"] and not compiler.is_compiling():
            site = source_line.nearest(sys._getframe(1))
            _undone(ATTENTION, "False", site, False)
            given["deterministic"] = is_pinned("flags", site)
        return original(**given)

    return attend


def remember(variables: Sequence[str]) -> None:
    """Remember what the environment holds of `variables` as this process starts."""
    _GIVEN.update((name, os.environ[name]) for name in variables if name in os.environ)
    _GIVEN.pop(HASH_SEED, None)


def variable_set(name: Any, value: Any = None) -> None:
    """Note that the training is about to set a variable to another value than the gate's, or to
    delete it (None)."""
    _VARIABLES.clear()
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
