"""One case of the catalog: an operator, how its inputs are made, and what torch's documentation
says of it.

Inputs come from a CPU generator that is seeded by the case's name, so each process makes the same
bits.
"""

from __future__ import annotations

import zlib
from typing import Any, Callable, Dict, List, Sequence, Tuple

FLOATS = ("float32", "float64", "bfloat16", "float16")
SIZES = 2  # a large one, and a larger one
Built = Tuple[Callable[..., Any], List[Any]]


class Making:
    """Makes the inputs of one case: `dtype` on `device`, from one seeded generator. The larger of
    two sizes has four times the elements."""

    def __init__(self, torch: Any, device: str, dtype: str, larger: bool, seed: int) -> None:
        self.torch, self.device, self.larger = torch, device, larger
        self.dtype = getattr(torch, dtype)
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters: List[Any] = []  # of the layers made here

    def n(self, elements: int) -> int:
        return elements * 4 if self.larger else elements

    def normal(self, *shape: int) -> Any:
        """Standard normal numbers; of an integer dtype, numbers from -100 to 99."""
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return self.torch.randint(
                -100, 100, shape, generator=self.generator, dtype=self.dtype
            ).to(self.device)
        wide = self.torch.float64 if self.dtype == self.torch.float64 else self.torch.float32
        made = self.torch.complex64 if self.dtype.is_complex else wide
        return (
            self.torch.randn(shape, generator=self.generator, dtype=made)
            .to(self.dtype)
            .to(self.device)
        )

    def uniform(self, *shape: int) -> Any:
        """Numbers in [0, 1)."""
        wide = self.torch.float64 if self.dtype == self.torch.float64 else self.torch.float32
        return (
            self.torch.rand(shape, generator=self.generator, dtype=wide)
            .to(self.dtype)
            .to(self.device)
        )

    def index(self, high: int, *shape: int) -> Any:
        """Whole numbers in [0, high), int64: far fewer values than places, so that many are
        equal."""
        return self.torch.randint(0, high, shape, generator=self.generator).to(self.device)

    def order(self, n: int) -> Any:
        """A permutation of 0 … n-1."""
        return self.torch.randperm(n, generator=self.generator).to(self.device)

    def of(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A layer of `torch.nn` with normal weights of this dtype."""
        layer = kind(*args, **kwargs).to(self.dtype)
        with self.torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(
                    self.torch.randn(parameter.shape, generator=self.generator).mul_(0.1)
                )
        layer = layer.to(self.device)
        self.parameters += list(layer.parameters())
        return layer


class Case:
    """`operator` is the name that users know, `build` gives the function and its inputs. `entry` is
    a pattern of the entry in torch's documented list, if it has one."""

    def __init__(
        self,
        operator: str,
        build: Callable[[Making], Built],
        *,
        source: str = "kernel",
        entry: str = "",
        dtypes: Sequence[str] = FLOATS,
        backward: bool = True,
        random: bool = False,
        sizes: int = SIZES,
        slow: bool = False,
        compiled: bool = False,
        risky: bool = False,
    ) -> None:
        self.operator, self.build, self.source, self.entry = operator, build, source, entry
        self.dtypes, self.backward, self.random, self.sizes = tuple(dtypes), backward, random, sizes
        self.slow = slow  # left out by --quick
        self.risky = risky  # adds or writes several sources to one place: executed more often
        self.compiled = compiled  # no dispatch to watch: torch.compile refuses it
        self.documented: Dict[
            str, Dict[str, str]
        ] = {}  # device -> direction -> "deterministic" or "raises"

    @property
    def name(self) -> str:
        return "%s/%s" % (self.source, self.operator)

    def directions(self, dtype: str) -> List[str]:
        differentiable = self.backward and not dtype.startswith(("int", "uint", "bool"))
        return ["forward", "backward"] if differentiable else ["forward"]

    def make(
        self, torch: Any, device: str, dtype: str, direction: str, size: int, seed: int
    ) -> Sample:
        """The function and its inputs of one size. OpInfo's cases, which ask for gradients as they
        are sampled, say so for themselves."""
        making = Making(torch, device, dtype, size > 0, seed + zlib.crc32(self.name.encode()))
        function, inputs = self.build(making)
        return Sample(function, inputs, making.parameters)


class Sample:
    """A function, its inputs, and of what a gradient is taken: the inputs of a float dtype but the
    `constants` (their places), and `parameters`, those of a layer."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: List[Any],
        parameters: List[Any],
        constants: Sequence[int] = (),
    ) -> None:
        self.function, self.inputs, self.parameters, self.constants = (
            function,
            inputs,
            parameters,
            frozenset(constants),
        )
        self.numbers = ""  # what the function is given beside tensors: part of the inputs
        self.copies = (
            False  # whether each execution has to be given copies, since it writes to its inputs
        )
