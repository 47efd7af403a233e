"""One case of the catalog: an operator, how its inputs are made, and what torch documents of it.

Inputs come from a CPU generator that is seeded by the case's name, so each process makes the same
bits.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, Callable

FLOATS = ("float32", "float64", "bfloat16", "float16")


@dataclass
class Sample:
    """A function and its inputs. Gradients are taken of the inputs of a float dtype, but of
    `constants` (their places), and of the `parameters` of its layers."""

    function: Callable[..., Any]
    inputs: list[Any]
    parameters: list[Any] = field(default_factory=list)
    constants: frozenset[int] = frozenset()
    numbers: str = ""  # what the function is given besides tensors: part of the inputs


class Making:
    """Makes the inputs of one case: `dtype` on `device`, from one seeded generator. The larger of
    two sizes has four times the elements."""

    def __init__(self, torch: Any, device: str, dtype: str, larger: bool, seed: int) -> None:
        self.torch, self.device, self.larger = torch, device, larger
        self.dtype = getattr(torch, dtype)
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters: list[Any] = []  # of the layers made here

    def n(self, elements: int) -> int:
        """Return how many elements there are at this size."""
        return elements * 4 if self.larger else elements

    def normal(self, *shape: int) -> Any:
        """Return standard normal numbers; of an integer dtype, numbers from -100 to 99."""
        torch, dtype = self.torch, self.dtype
        if dtype.is_complex:
            made = torch.randn(shape, generator=self.generator, dtype=torch.complex64)
        elif dtype.is_floating_point:
            made = torch.randn(shape, generator=self.generator, dtype=self._wide())
        else:
            made = torch.randint(-100, 100, shape, generator=self.generator, dtype=dtype)
        return made.to(dtype).to(self.device)

    def uniform(self, *shape: int) -> Any:
        """Return numbers in [0, 1)."""
        made = self.torch.rand(shape, generator=self.generator, dtype=self._wide())
        return made.to(self.dtype).to(self.device)

    def _wide(self) -> Any:
        """Return what numbers are drawn in: half precisions are rounded float32."""
        torch = self.torch
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def index(self, high: int, *shape: int) -> Any:
        """Return whole numbers in [0, high), int64: far fewer values than places, so that many are
        equal."""
        return self.torch.randint(0, high, shape, generator=self.generator).to(self.device)

    def order(self, count: int) -> Any:
        """Return a permutation of 0 … count-1."""
        return self.torch.randperm(count, generator=self.generator).to(self.device)

    def of(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a layer of `torch.nn` with normal weights of this dtype."""
        layer = kind(*args, **kwargs).to(self.dtype)
        with self.torch.no_grad():
            for parameter in layer.parameters():
                drawn = self.torch.randn(parameter.shape, generator=self.generator)
                parameter.copy_(drawn.mul_(0.1))
        layer = layer.to(self.device)
        self.parameters += list(layer.parameters())
        return layer


Build = Callable[[Making], "tuple[Callable[..., Any], list[Any]]"]


@dataclass
class Case:
    """`name` is `source/operator`; `build` returns the function and its inputs."""

    name: str
    build: Build
    dtypes: tuple[str, ...] = FLOATS
    backward: bool = True
    sizes: int = 2  # a large one, and a larger one
    entry: str = ""  # pattern of its entry in torch's documented list
    risky: bool = False  # adds or writes several sources to one place: executed more often
    # direction -> "deterministic" or "raises", on this device
    documented: dict[str, str] = field(default_factory=dict)

    @property
    def compiled(self) -> bool:
        """Whether torch.compile writes its kernels: slow, and no dispatch to watch."""
        return self.name.startswith("compile/")

    def directions(self, dtype: str) -> list[str]:
        """Return what is measured in this dtype."""
        differentiable = self.backward and not dtype.startswith(("int", "uint", "bool"))
        return ["forward", "backward"] if differentiable else ["forward"]

    def make(self, torch: Any, device: str, dtype: str, direction: str, size: int) -> Sample:
        """Return the function and its inputs of one size. The direction matters only to PyTorch's
        own samples."""
        making = Making(torch, device, dtype, size > 0, zlib.crc32(self.name.encode()))
        function, inputs = self.build(making)
        return Sample(function, inputs, making.parameters)
