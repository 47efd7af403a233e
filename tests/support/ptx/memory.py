"""The memory that `tests.support.ptx` runs over: every access is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of numpy, whose types are not followed here
WARP = 32


class Illegal(Exception):
    """What a GPU need not do as it was meant."""


class Memory:
    """Global memory: buffers by their addresses, which end where they end."""

    def __init__(self, allocations: Mapping[int, Any]) -> None:
        held = sorted(
            (base, np.frombuffer(buffer, np.uint8))
            for base, buffer in allocations.items()
            if len(memoryview(buffer))
        )
        self.bases = np.array([base for base, _ in held], np.int64)
        self.buffers = [buffer for _, buffer in held]
        self.ends = self.bases + [buffer.size for buffer in self.buffers]
        self.written = [np.zeros(buffer.size, bool) for buffer in self.buffers]
        if (self.ends[:-1] > self.bases[1:]).any():
            raise Illegal("allocations lie over each other")

    def load(self, addresses: Array, size: int, constant: bool = False) -> Array:
        """Return uint8 [threads, size]; with `constant`, nobody may have written it."""
        content = np.empty((addresses.size, size), np.uint8)
        for number, rows, places in self._places(addresses, size):
            if constant and self.written[number][places].any():
                raise Illegal("what this kernel wrote is read as if it were constant")
            content[rows] = self.buffers[number][places]
        return content

    def store(self, addresses: Array, content: Array) -> None:
        """Write uint8 [threads, size]."""
        for number, rows, places in self._places(addresses, content.shape[1]):
            buffer = self.buffers[number]
            if not buffer.flags.writeable:
                raise Illegal(f"a store to memory for reading at {addresses[rows][0]:#x}")
            buffer[places] = content[rows]
            self.written[number][places] = True
            if (buffer[places] != content[rows]).any():
                raise Illegal("threads store different values at one address")

    def _places(self, addresses: Array, size: int) -> Iterator[tuple[int, Array, Array]]:
        """Yield (buffer, its threads, their places in it [threads, size])."""
        aligned(addresses, size)
        numbers = np.searchsorted(self.bases, addresses, "right") - 1
        outside = (numbers < 0) | (addresses + size > np.append(self.ends, 0)[numbers])
        if outside.any():
            raise Illegal(f"{size} bytes at {addresses[outside][0]:#x} lie in no allocation")
        for number in np.unique(numbers):
            rows = numbers == number
            yield number, rows, (addresses[rows] - self.bases[number])[:, None] + np.arange(size)


class Shared:
    """Shared memory of one program: between two barriers, what one warp writes no other warp
    reads or writes, and nobody reads what nobody wrote."""

    def __init__(self, size: int) -> None:
        self.content: Array = np.zeros(size, np.uint8)
        self.filled: Array = np.zeros(size, bool)
        self.writer = np.full(size, -1)
        self.readers: Array = np.zeros(size, np.int64)  # one bit for each warp

    def barrier(self) -> None:
        """Forget who read and wrote."""
        self.writer[:] = -1
        self.readers[:] = 0

    def load(self, addresses: Array, size: int, warps: Array) -> Array:
        """Return uint8 [threads, size]."""
        places = self._places(addresses, size, warps)
        if not self.filled[places].all():
            raise Illegal("shared memory is read before it is written")
        np.bitwise_or.at(self.readers, places, 1 << warps[:, None])
        return self.content[places]

    def store(self, addresses: Array, content: Array, warps: Array) -> None:
        """Write uint8 [threads, size]."""
        places = self._places(addresses, content.shape[1], warps)
        if (self.readers[places] & ~(1 << warps[:, None])).any():
            raise Illegal("a warp overwrites what another reads: there is no barrier between")
        self.content[places] = content
        self.writer[places] = warps[:, None]
        self.filled[places] = True
        if (self.writer[places] != warps[:, None]).any():
            raise Illegal("two warps store at one place of shared memory")
        if (self.content[places] != content).any():
            raise Illegal("threads store different values at one place of shared memory")

    def _places(self, addresses: Array, size: int, warps: Array) -> Array:
        aligned(addresses, size)
        outside = (addresses < 0) | (addresses + size > self.content.size)
        if outside.any():
            raise Illegal(f"shared memory has no {size} bytes at {addresses[outside][0]:#x}")
        places = addresses[:, None] + np.arange(size)
        writer = self.writer[places]
        if ((writer != -1) & (writer != warps[:, None])).any():
            raise Illegal("a warp meets what another wrote: there is no barrier between")
        return places


def aligned(addresses: Array, size: int) -> None:
    """Raise Illegal unless all addresses are multiples of the size of the access."""
    wrong = addresses % size != 0
    if wrong.any():
        raise Illegal(f"{size} bytes at {addresses[wrong][0]:#x} are misaligned")
