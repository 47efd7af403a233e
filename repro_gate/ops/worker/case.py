"""One case of the catalog: an operator, how its inputs are made, and what torch documents of it."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

FLOATS = ("float32", "float64", "bfloat16", "float16")


@dataclass
class Sample:
    """A function and its inputs. Gradients are taken of the inputs of a float dtype, but of
    `constants` (their places), and of the `parameters` of its layers."""

    function: Callable[..., Any]
    inputs: list[Any]
    parameters: list[Any] = field(default_factory=list)
    constants: Collection[int] = ()
    numbers: str = ""  # what the function is given besides tensors: part of the inputs


class Making(NamedTuple):
    """Which inputs of a case are made."""

    torch: Any
    device: str
    dtype: Any
    backward: bool
    times: int  # elements, by those of the smaller of two sizes
    seed: int


@dataclass
class Case:
    """An operator; `name` is `source/operator`."""

    name: str
    build: Callable[[Making], Sample]
    dtypes: tuple[str, ...] = FLOATS
    backward: Collection[str] = (*FLOATS, "complex64")  # dtypes in which it is measured, too
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
        return ["forward", "backward"] if dtype in self.backward else ["forward"]

    def make(self, torch: Any, device: str, dtype: str, direction: str, size: int) -> Sample:
        """Return the function and its inputs of one size."""
        kind, seed = getattr(torch, dtype), zlib.crc32(self.name.encode())
        times = 4 if size else 1
        return self.build(Making(torch, device, kind, direction == "backward", times, seed))
