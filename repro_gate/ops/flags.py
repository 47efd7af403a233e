"""Torch's determinism flags off (its defaults) and on, and the generators' seed: what differs
between the two arms of a measurement."""

from __future__ import annotations

from typing import Any


def switch(torch: Any, on: bool) -> None:
    """All flags that a running process can change. `CUBLAS_WORKSPACE_CONFIG` is the environment's:
    whoever starts the worker sets it."""
    torch.use_deterministic_algorithms(on)
    torch.utils.deterministic.fill_uninitialized_memory = on
    torch.backends.cudnn.deterministic = on
    torch.backends.cudnn.benchmark = False
    if hasattr(torch.backends.mkldnn, "deterministic"):
        torch.backends.mkldnn.deterministic = on


def seed(torch: Any, number: int) -> None:
    """Every generator that an operator may draw from without being given one. (`torch.manual_seed`
    takes 0.2 ms, with all devices.)"""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(number)


def refused(error: BaseException) -> bool:
    """Whether torch refused an operator because the deterministic flag is on."""
    return isinstance(error, RuntimeError) and "deterministic" in str(error).lower()


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine was short of memory, which says nothing about the operator. (PyTorch's
    message on a CPU, its class on a GPU.)"""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def fatal(error: BaseException) -> bool:
    """Whether every later call of CUDA in this process fails as well: an assertion on the device,
    an illegal address."""
    return not out_of_memory(error) and (
        type(error).__name__ == "AcceleratorError" or str(error).startswith("CUDA error")
    )


def settle(torch: Any, device: str) -> None:
    """Flags off, and what a process does only once done: two threads in its first call of MKL's
    vector math race, whatever the operator."""
    switch(torch, False)
    if torch.backends.mkl.is_available():
        torch.ones(1).sqrt()
    if device == "cuda":
        torch.cuda.init()
