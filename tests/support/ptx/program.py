"""One block of threads, for `tests.support.ptx`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.ptx.memory import WARP, Array, Illegal, Memory, Shared
from tests.support.ptx.text import TYPES, UNSIGNED, Address, Entry


@functools.lru_cache(maxsize=4096)
def _constant(value: int, kind: str, threads: int) -> Array:
    if kind == "pred":
        return np.full(threads, value != 0)
    dtype = np.dtype(TYPES[kind])
    value &= (1 << 8 * dtype.itemsize) - 1
    return np.full(threads, value, UNSIGNED[dtype.itemsize]).view(dtype)


class Program:
    """One block of threads, its registers and its shared memory."""

    def __init__(
        self,
        entry: Entry,
        params: Sequence[int],
        memory: Memory,
        shared: int,
        block: tuple[int, ...],
    ) -> None:
        self.entry = entry
        self.memory = memory
        self.shared = Shared(entry.end + shared)
        self.threads = int(np.prod(block))
        self.everyone: Array = np.ones(self.threads, bool)
        self.warps: Array = np.arange(self.threads) // WARP
        self.params = dict(zip([name for name, _ in entry.params], params, strict=True))
        self.kinds = dict(entry.params)
        self.values: dict[str, Array] = {}
        # in which threads a register has a value, where not in all. Triton computes with registers
        # that have none, as of a load under a guard, and then uses other threads' results.
        self.known: dict[str, Array] = {}
        self.clean = self.everyone  # in which threads all that this instruction read has a value
        self.place("tid", np.arange(self.threads), block)
        self.values["%laneid"] = (np.arange(self.threads) % WARP).astype(np.uint32)

    def place(self, name: str, number: Any, sizes: tuple[int, ...]) -> None:
        """Set the special registers of this name, and those with the sizes."""
        for axis, size in zip("xyz", sizes, strict=True):
            here = np.broadcast_to(number % size, self.threads).astype(np.uint32)
            self.values[f"%{name}.{axis}"] = here
            self.values[f"%n{name}.{axis}"] = np.full(self.threads, size, np.uint32)
            number = number // size

    def get(self, operand: Any, kind: str, narrow: bool = False) -> Array:
        """Return an operand's values; with `narrow` the low part of a wider register."""
        dtype = np.dtype(TYPES[kind])
        if isinstance(operand, str) and operand in self.entry.symbols:
            operand = self.entry.symbols[operand]
        if isinstance(operand, int):
            return _constant(operand, kind, self.threads)
        values = self.values.get(operand)
        if values is None:
            raise Illegal(f"{operand} is read before it is written")
        if operand in self.known:
            self.clean = self.clean & self.known[operand]
        if narrow and values.dtype.itemsize > dtype.itemsize:
            return values.astype(dtype)
        if values.dtype.itemsize != dtype.itemsize:
            raise Illegal(f"{operand} does not hold a {kind}")
        return values.view(dtype)

    def put(self, register: str, values: Array, mask: Array, widen: bool = False) -> None:
        """Write a register of the threads in the mask; with `widen` it may be wider."""
        if register == "_":
            return
        if register not in self.entry.registers:
            raise Illegal(f"{register} is not declared")
        dtype = np.dtype(self.entry.registers[register])
        if widen and dtype.itemsize > values.dtype.itemsize:
            values = values.astype(dtype)  # the sign's bits too, where there is a sign
        if dtype.itemsize != values.dtype.itemsize:
            raise Illegal(f"{register} does not hold a {values.dtype}")
        values = values.view(dtype)
        old = self.values.get(register)
        known = self.clean
        if mask is not self.everyone:
            had = self.known.get(register, np.full(self.threads, old is not None))
            known = np.where(mask, known, had)
            values = values if old is None else np.where(mask, values, old)
        self.values[register] = values
        self.known.pop(register, None)
        if not known.all():
            self.known[register] = known

    def demand(self, mask: Array) -> None:
        """Raise Illegal where this instruction read what has no value."""
        if not self.clean[mask].all():
            raise Illegal("what has no value is used")

    def addresses(self, operand: Address, mask: Array, kind: str) -> Array:
        """Return the addresses of the threads in the mask, in shared memory for `u32`."""
        held = self.values.get(operand.base)
        if kind == "u32" and held is not None and held.dtype.itemsize == 8:
            kind = "u64"
        base = self.get(operand.base, kind)[mask].astype(np.int64)
        self.demand(mask)
        return base + operand.offset

    def whole_warps(self, mask: Array, members: Array) -> None:
        """Raise Illegal unless each warp executes with exactly its members."""
        wanted = (members >> (np.arange(self.threads) % WARP).astype(np.uint32) & 1).astype(bool)
        here = np.isin(self.warps, self.warps[mask])
        if (mask[here] != wanted[here]).any():
            raise Illegal("threads of a warp are missing")
