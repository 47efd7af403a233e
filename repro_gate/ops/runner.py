"""Executes one sample of a case again and again, forward or backward, from the same bits and the
same seed."""

from __future__ import annotations

from typing import Any, List

from . import flags
from .case import Sample


class Runner:
    """Executes one sample, under the flags as they stand. A backward runs again and again through
    one graph, where torch allows it; where the flags refuse its forward, `unflagged`, that is made
    without them."""

    def __init__(self, torch: Any, sample: Sample, direction: str, number: int) -> None:
        self.torch, self.sample, self.direction, self.number = torch, sample, direction, number
        self._graph: Any = None
        self._once_only = self.unflagged = False

    def prepare(self) -> None:
        """Make the graph that a backward goes through; with it stays what its forward chose under
        the flags."""
        self._graph = None
        if self.direction != "backward":
            return
        try:
            self._graph = self._forward()
        except RuntimeError as error:
            if not flags.refused(error) or self.unflagged:
                raise
            self.unflagged = True
            self._graph = self._forward()

    def anew(self) -> Any:
        """With a new graph."""
        self.prepare()
        return self.run()

    def run(self) -> Any:
        """Seed, then execute."""
        flags.seed(self.torch, self.number)
        return self.execute()

    def execute(self) -> Any:
        """What is timed."""
        if self.direction == "forward":
            with self.torch.no_grad():
                return self.sample.function(*self._inputs())
        if self._graph is None or self._once_only:
            self._graph = self._forward()
        try:
            return self._backward()
        except RuntimeError as error:
            if self._once_only or flags.refused(error):
                raise
            self._once_only = (
                True  # this graph bears no second backward, or its layer's buffers have moved on
            )
        self._graph = self._forward()
        return self._backward()

    def _forward(self) -> Any:
        if not self.unflagged:
            return self._made()
        flags.switch(self.torch, False)
        try:
            return self._made()
        finally:
            flags.switch(self.torch, True)

    def _made(self) -> Any:
        torch = self.torch
        flags.seed(torch, self.number)
        sample = self.sample
        inputs = [item for place, item in enumerate(sample.inputs) if place not in sample.constants]
        wanted = [item for item in inputs + sample.parameters if _differentiable(torch, item)]
        for item in wanted:
            item.requires_grad_(True)
        outputs = tensors(torch, self.sample.function(*self._inputs()))
        outputs = [item for item in outputs if item.requires_grad]
        if not outputs or not wanted:
            raise NotImplementedError("no output has a gradient")
        generator = torch.Generator().manual_seed(self.number)
        return outputs, [_weights(torch, item, generator) for item in outputs], wanted

    def _inputs(self) -> List[Any]:
        if not self.sample.copies:
            return self.sample.inputs
        return [
            item.clone() if isinstance(item, self.torch.Tensor) else item
            for item in self.sample.inputs
        ]

    def _backward(self) -> Any:
        outputs, weights, wanted = self._graph
        found = self.torch.autograd.grad(
            outputs, wanted, weights, retain_graph=not self._once_only, allow_unused=True
        )
        return [item for item in found if item is not None]


def tensors(torch: Any, value: Any) -> List[Any]:
    from torch.utils._pytree import tree_leaves

    return [item for item in tree_leaves(value) if isinstance(item, torch.Tensor)]


def _differentiable(torch: Any, item: Any) -> bool:
    return (
        isinstance(item, torch.Tensor)
        and (item.is_floating_point() or item.is_complex())
        and item.is_leaf
    )


def _weights(torch: Any, output: Any, generator: Any) -> Any:
    """The fixed cotangent of one output: normal numbers of its shape."""
    if output.layout != torch.strided or output.is_nested:
        return torch.ones_like(output)
    kind = torch.complex64 if output.is_complex() else torch.float32
    return (
        torch.randn(output.shape, generator=generator, dtype=kind)
        .to(output.dtype)
        .to(output.device)
    )
