"""Executes one sample: under the determinism flags, from one seed, beside other work; and what an
exception says."""

from __future__ import annotations

import contextlib
import threading
import time
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
    torch.backends.mkldnn.deterministic = on  # torch 2.4 ignores it


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


@dataclass
class Runner:
    """Executes one sample again and again for an arm, from the same bits and the same seed, with
    the flags off or `on`. A backward runs through one graph, if torch allows it; if the flags
    refuse its forward, `unflagged`, that is made without them."""

    arm: Arm
    sample: Sample
    direction: str
    on: bool
    unflagged = False
    # A graph bears no second backward, or its layer's buffers have moved on.
    one_backward = False

    def start(self) -> bool:
        """Make the execution that the later ones are compared with; it warms up, too. Return False
        if there is none: the arm says why, or had a smaller size."""
        arm = self.arm
        self.times: list[float] = []  # milliseconds of the later ones
        try:
            if self.direction == "backward":
                self._build()
            self.first = copied(bits.leaves(self.run()))
        except Exception as error:
            if not arm.digests:
                arm.fail(error)
            return False
        if self.unflagged:
            arm.message = "the forward, which the flags refuse, ran without them"
        arm.digests.append(bits.digest(self.first))
        arm.runs = 1
        arm.differing = 0
        return True

    def run(self) -> Any:
        """Execute under the arm's flags and with the seed."""
        return self._execute(self._prepare(self.on))

    def again(self) -> None:
        """Execute as before, take the time of the execution alone, and compare."""
        arm = self.arm
        inputs = self._prepare(self.on)
        _wait()
        started = time.perf_counter()
        arm.runs += 1
        try:
            result = self._execute(inputs)
            _wait()
            took = round((time.perf_counter() - started) * 1000, 4)
            found = bits.leaves(result)
        except Exception as error:
            arm.fail(error)
            if arm.outcome != "crash":
                arm.outcome = "differs"
            first = "the first execution ran, a later one did not"
            arm.message = f"{first}: {arm.message}"
            arm.differing += 1
            return
        self.times.append(took)
        if not bits.equal(self.first, found):
            if arm.outcome != "uninitialised":
                arm.outcome = "differs"
            arm.differing += 1
            distances = arm.max_ulp, bits.largest_ulp(self.first, found)
            arm.max_ulp = max(filter(None, distances), default=None)

    def _prepare(self, on: bool) -> list[Any]:
        """Switch the flags, seed, and return copies of the inputs: it may write to them."""
        switch(on)
        inputs = copied(self.sample.inputs)
        seed()
        return inputs

    def _build(self) -> None:
        """Make the graph, whose kernels are chosen under the flags as they are now."""
        try:
            self.graph = self._forward()
        except RuntimeError as error:
            if not refused(error):
                raise
            self.unflagged = True
            self.graph = self._forward()

    def _execute(self, inputs: list[Any]) -> Any:
        if self.direction == "forward":
            with torch.no_grad():
                return self.sample.function(*inputs)
        if not self.one_backward:
            try:
                return self._backward()
            except RuntimeError as error:
                if refused(error):
                    raise
                self.one_backward = True
        self.graph = self._forward()
        return self._backward()

    def _forward(self) -> Any:
        """Return outputs, their fixed cotangents, and what gradients are taken of."""
        sample = self.sample
        sources = []
        for place, item in enumerate(sample.inputs + sample.parameters):
            is_float = item.is_floating_point() or item.is_complex()
            if place not in sample.constants and item.is_leaf and is_float:
                sources.append(item.requires_grad_(True))
        inputs = self._prepare(self.on and not self.unflagged)
        outputs = bits.tensors(sample.function(*inputs))
        switch(self.on)
        outputs = [item for item in outputs if item.requires_grad]
        if not outputs or not sources:
            raise NotImplementedError("no output has a gradient")
        generator = torch.Generator().manual_seed(1)
        return outputs, [_cotangent(item, generator) for item in outputs], sources

    def _backward(self) -> Any:
        outputs, cotangents, sources = self.graph
        gradients = torch.autograd.grad(
            outputs,
            sources,
            cotangents,
            retain_graph=not self.one_backward,
            allow_unused=True,
        )
        return [item for item in gradients if item is not None]


def copied(values: list[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in values]


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _cotangent(output: Any, generator: Any) -> Any:
    """Return normal numbers of the output's shape."""
    if output.layout != torch.strided or output.is_nested:
        return torch.ones_like(output)
    kind = torch.complex64 if output.is_complex() else torch.float32
    drawn = torch.randn(output.shape, generator=generator, dtype=kind)
    return drawn.to(output.dtype).to(output.device)
