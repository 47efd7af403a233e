"""Torch's determinism flags off (its defaults) and on, the generators' seed, and what an operator's
exception says."""

from __future__ import annotations

from typing import Any


def switch(torch: Any, on: bool) -> None:
    """Switch all flags that a running process can change. `CUBLAS_WORKSPACE_CONFIG` is the
    environment's: whoever starts the worker sets it."""
    torch.use_deterministic_algorithms(on)
    torch.utils.deterministic.fill_uninitialized_memory = on
    torch.backends.cudnn.deterministic = on
    torch.backends.cudnn.benchmark = False
    if hasattr(torch.backends.mkldnn, "deterministic"):
        torch.backends.mkldnn.deterministic = on


def seed(torch: Any) -> None:
    """Seed every generator that an operator may draw from without being given one.
    (`torch.manual_seed` takes 0.2 ms, with all devices.)"""
    torch.default_generator.manual_seed(1)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(1)


def outcome_of(error: BaseException) -> str:
    """Return what an operator came to that raised. Raises the error if every later call of CUDA in
    this process fails as well: an assertion on the device, an illegal address."""
    name, text = type(error).__name__, str(error)
    # PyTorch's message on a CPU, its class on a GPU
    out_of_memory = isinstance(error, MemoryError) or name == "OutOfMemoryError"
    if out_of_memory or "can't allocate memory" in text:
        return "crash"  # the machine's, which says nothing about the operator
    if name == "AcceleratorError" or text.startswith("CUDA error"):
        raise error
    return "raises" if refused(error) else "no-kernel"


def refused(error: BaseException) -> bool:
    """Return whether torch refused an operator because the deterministic flag is on."""
    return isinstance(error, RuntimeError) and "deterministic" in str(error).lower()
