"""Run PTX as Triton emits it, without a GPU and strictly: what a GPU may do in silence raises here.

All threads of a block run at once, a register is a numpy array with one value for each of them.
Where threads part, those with the lowest place in the code go first, until all are together again.
The programs of a grid run one after another. Numbers are integers: there is no floating point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.ptx.instructions import BRANCHES, HANDLERS
from tests.support.ptx.memory import WARP, Array, Illegal, Memory
from tests.support.ptx.program import Program
from tests.support.ptx.text import Instruction, parsed

__all__ = ["Illegal", "run"]
MOST_STEPS = 2_000_000  # instructions of one program, behind which it is taken to never end


def run(
    ptx_text: str,
    entry_name: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    params: Sequence[int],
    memory: Mapping[int, Any],
    *,
    shared: int = 0,
    order: Iterable[int] | None = None,
) -> Counter[str]:
    """Run a kernel's programs, in the order given. `memory` are buffers (bytearray, numpy, ctypes)
    by their addresses, `shared` is the size of the dynamic shared memory. Return how often each
    opcode was executed by a program. Raise Illegal."""
    entry = parsed(ptx_text, entry_name)
    grid, block = ((size,) if isinstance(size, int) else size for size in (grid, block))
    grid, block = (tuple(size) + (1,) * (3 - len(size)) for size in (grid, block))
    threads = int(np.prod(block))
    if entry.block not in (None, threads):
        raise Illegal(f"{threads} threads, the kernel asks for {entry.block}")
    if len(params) != len(entry.params):
        raise Illegal(f"{len(params)} parameters, the kernel takes {len(entry.params)}")
    if threads % WARP:
        raise Illegal(f"{threads} threads are no whole warps")
    for instruction in entry.code:
        if instruction.name not in HANDLERS and instruction.name not in BRANCHES:
            raise Illegal(f"line {instruction.line}: unknown instruction {instruction.opcode}")
    space = Memory(memory)
    counts: Counter[str] = Counter()
    with np.errstate(all="ignore"):
        for number in range(int(np.prod(grid))) if order is None else order:
            program = Program(entry, params, space, shared, block)
            program.place("ctaid", number, grid)
            _run(program, counts)
    return counts


def _run(program: Program, counts: Counter[str]) -> None:
    """Run all threads of a program to their end. Raise Illegal, with the line."""
    code, end = program.entry.code, len(program.entry.code)
    places: Array = np.zeros(program.threads, int)
    steps = 0
    while (first := int(places.min())) < end:
        mask = places == first
        later = places[~mask]
        mask = mask if later.size else program.everyone
        for at in range(first, int(later.min()) if later.size else end):
            instruction = code[at]
            counts[instruction.opcode] += 1
            steps += 1
            try:
                if steps > MOST_STEPS:
                    raise Illegal("the program does not end")
                went = _step(program, instruction, mask)
            except Illegal as illegal:
                raise Illegal(f"line {instruction.line}: {illegal}") from None
            places[mask] = at + 1
            if went is not None:
                target = (
                    program.entry.labels[instruction.operands[0]] if instruction.operands else end
                )
                places[went] = target
                break


def _step(program: Program, instruction: Instruction, mask: Array) -> Array | None:
    """Execute one instruction. Return the threads that branch or end, None for any other
    instruction."""
    active = mask
    program.clean = program.everyone
    if instruction.guard is not None:
        guard = program.get(instruction.guard, "pred")
        program.demand(mask)
        active = mask & (guard == instruction.wanted)
        active = program.everyone if active.all() else active
    if instruction.name in BRANCHES:
        return active
    if active.any():
        HANDLERS[instruction.name](program, instruction, active)
    return None
