"""Executes one sample: under the determinism flags, from one seed, beside other work; and what an
exception says."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any, Iterator

import torch

from . import bits
from .cases import Sample

# of the load's matrices: a product takes about a millisecond, so that the load ends soon after it
# is told to
_SIDE = 192
_LONGEST_MESSAGE = 300


def switch(on: bool) -> None:
    """Switch all determinism flags that a running process can change; off is torch's default.
    `CUBLAS_WORKSPACE_CONFIG` is the environment's: whoever starts the worker sets it."""
    torch.use_deterministic_algorithms(on)
    torch.utils.deterministic.fill_uninitialized_memory = on
    torch.backends.cudnn.deterministic = on
    torch.backends.cudnn.benchmark = False
    if hasattr(torch.backends.mkldnn, "deterministic"):
        torch.backends.mkldnn.deterministic = on


def seed() -> None:
    """Seed every generator that an operator may draw from without being given one.
    (`torch.manual_seed` takes 0.2 ms, with all devices.)"""
    torch.default_generator.manual_seed(1)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(1)


def outcome_of(error: BaseException) -> str:
    """Return what an operator came to that raised. Raises the error if every later call of CUDA in
    this process fails as well: an assertion on the device, an illegal address."""
    name = type(error).__name__
    text = str(error)
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


@contextlib.contextmanager
def load(device: str) -> Iterator[None]:
    """Keep the device busy meanwhile: a thread multiplies matrices, on a GPU in a second stream."""
    ended = threading.Event()

    def work() -> None:
        side = _SIDE * 8 if device == "cuda" else _SIDE
        matrix = torch.full((side, side), 1e-3, device=device)
        stream = torch.cuda.Stream() if device == "cuda" else None
        while not ended.is_set():
            with torch.cuda.stream(stream):  # without a stream it does nothing
                torch.mm(matrix, matrix)
            if stream is not None:
                stream.synchronize()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


@dataclass
class Arm:
    """What one arm gave, over all sizes of one row, as the catalog has it."""

    outcome: str = "repeats"
    message: str = ""
    runs: int = 0  # of the last size
    differing: int = 0
    max_ulp: int | None = None
    digests: list[str] = field(default_factory=list)  # of each size's first result

    def fail(self, error: Exception) -> None:
        """Note that it raised. Raises what leaves no later operator of this process a chance."""
        self.outcome = outcome_of(error)
        text = " ".join(str(error).split()) or type(error).__name__
        self.message = text[:_LONGEST_MESSAGE]

    def fail_later(self, error: Exception) -> None:
        """Note that it raised, although the first execution did not."""
        self.fail(error)
        self.outcome = "crash" if self.outcome == "crash" else "differs"
        self.message = f"the first execution ran, a later one did not: {self.message}"
        self.differing += 1

    def differ(self, distance: int | None) -> None:
        """Note that an execution differs from the first, and how far."""
        self.outcome = "uninitialised" if self.outcome == "uninitialised" else "differs"
        self.differing += 1
        self.max_ulp = (
            distance if self.max_ulp is None else max(self.max_ulp, distance or 0)
        )


class Runner:
    """Executes one sample again and again for an arm, from the same bits and the same seed, with
    the flags off or `on`. A backward runs through one graph, if torch allows it; if the flags
    refuse its forward, `unflagged`, that is made without them."""

    def __init__(self, arm: Arm, sample: Sample, direction: str, on: bool) -> None:
        self.arm = arm
        self.sample = sample
        self.direction = direction
        self.on = on
        self.copies = False  # whether each execution is given copies, since it writes to its inputs
        self.unflagged = self._once_only = False
        self._graph: Any = None
        self.first: list[Any] = []  # what the first execution gave
        self.times: list[float] = []  # milliseconds of the executions alone

    def anew(self) -> Any:
        """Execute with a new graph, which chose its kernels under the flags as they are now."""
        if self.direction == "backward":
            try:
                self._graph = self._forward()
            except RuntimeError as error:
                if not refused(error) or self.unflagged:
                    raise
                self.unflagged = True
                self._graph = self._forward()
        return self.run()

    def run(self) -> Any:
        """Execute under the arm's flags and with the seed."""
        self.prepare()
        return self.execute()

    def prepare(self) -> None:
        """Switch the flags, and seed."""
        switch(self.on)
        seed()

    def execute(self) -> Any:
        """Execute: this is what is timed."""
        if self.direction == "forward":
            with torch.no_grad():
                return self.sample.function(*self._inputs())
        if not self._once_only:
            try:
                return self._backward()
            except RuntimeError as error:
                if refused(error):
                    raise
                # this graph bears no second backward, or its layer's buffers have moved on
                self._once_only = True
        self._graph = self._forward()
        return self._backward()

    def _forward(self) -> Any:
        """Return outputs, their fixed cotangents, and what gradients are taken of."""
        sample = self.sample
        inputs = [
            item
            for place, item in enumerate(sample.inputs)
            if place not in sample.constants
        ]
        sources = [
            item.requires_grad_(True)
            for item in inputs + sample.parameters
            if item.is_leaf and (item.is_floating_point() or item.is_complex())
        ]
        switch(self.on and not self.unflagged)
        seed()
        outputs = bits.tensors(sample.function(*self._inputs()))
        switch(self.on)
        outputs = [item for item in outputs if item.requires_grad]
        if not outputs or not sources:
            raise NotImplementedError("no output has a gradient")
        generator = torch.Generator().manual_seed(1)
        return outputs, [_cotangent(item, generator) for item in outputs], sources

    def _inputs(self) -> list[Any]:
        return copied(self.sample.inputs) if self.copies else self.sample.inputs

    def _backward(self) -> Any:
        outputs, cotangents, sources = self._graph
        gradients = torch.autograd.grad(
            outputs,
            sources,
            cotangents,
            retain_graph=not self._once_only,
            allow_unused=True,
        )
        return [item for item in gradients if item is not None]


def versions(sample: Sample) -> list[int]:
    return [
        item._version for item in bits.tensors(sample.inputs) if not item.is_inference()
    ]


def copied(values: list[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in values]


def _cotangent(output: Any, generator: Any) -> Any:
    """Return normal numbers of the output's shape."""
    if output.layout != torch.strided or output.is_nested:
        return torch.ones_like(output)
    kind = torch.complex64 if output.is_complex() else torch.float32
    drawn = torch.randn(output.shape, generator=generator, dtype=kind)
    return drawn.to(output.dtype).to(output.device)
