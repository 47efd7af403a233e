"""The instructions that `tests.support.ptx` knows, by the names of `Instruction`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.ptx.memory import WARP, Array, Illegal
from tests.support.ptx.program import Program
from tests.support.ptx.text import TYPES, Instruction

Handler = Callable[[Program, Instruction, Array], None]
BRANCHES = {"bra", "bra.uni", "ret", "exit"}


def _wide(value: Array) -> Array:
    """Return the same numbers in twice the bits."""
    return value.astype(f"{value.dtype.kind}{2 * value.dtype.itemsize}")


def _high(left: Array, right: Array) -> Array:
    product = left.astype(object) * right.astype(object) >> 8 * left.dtype.itemsize
    return product.astype(left.dtype)


def _ones(count: Array) -> Array:
    """Return uint64 numbers of so many ones."""
    return (np.uint64(1) << (count & 0xFF).astype(np.uint64)) - np.uint64(1)


def _extract(value: Array, place: Array, count: Array) -> Array:
    moved = value.astype(np.uint64) >> (place & 0xFF).astype(np.uint64)
    return (moved & _ones(count)).astype(value.dtype)


def _insert(value: Array, into: Array, place: Array, count: Array) -> Array:
    place = (place & 0xFF).astype(np.uint64)
    mask = (_ones(count) << place).astype(value.dtype)
    return into & ~mask | (value << place.astype(value.dtype)) & mask


def _funnel(left: bool) -> Callable[..., Array]:
    def shifted(low: Array, high: Array, count: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        count = (count & 31).astype(np.uint64)
        both = both << count >> np.uint64(32) if left else both >> count
        return both.astype(np.uint32)

    return shifted


def _permute(low: Array, high: Array, chosen: Array) -> Array:
    both = high.astype(np.uint64) << np.uint64(32) | low
    made = np.zeros_like(low)
    for place in range(4):
        which = chosen >> np.uint32(4 * place)
        byte = both >> (8 * (which & 7)).astype(np.uint64) & np.uint64(0xFF)
        sign = np.where(byte >> np.uint64(7), 0xFF, 0).astype(np.uint32)
        byte = np.where(which & 8, sign, byte.astype(np.uint32))
        made |= byte << np.uint32(8 * place)
    return made


def _logic(a: Array, b: Array, c: Array, table: Array) -> Array:
    made = np.zeros_like(a)
    for row in range(8):
        if int(table[0]) >> row & 1:
            parts = zip((a, b, c), (row & 4, row & 2, row & 1), strict=True)
            made |= functools.reduce(
                np.bitwise_and, [part if bit else ~part for part, bit in parts]
            )
    return made


def _negated(value: Array) -> Array:
    return np.logical_not(value) if value.dtype == bool else ~value


# name -> (function of operands of the instruction's type, which operands are u32 all the same)
SIMPLE: dict[str, tuple[Callable[..., Array], set[int]]] = {
    "add": (np.add, set()),
    "sub": (np.subtract, set()),
    "mul.lo": (np.multiply, set()),
    "mul.hi": (_high, set()),
    "mul.wide": (lambda a, b: _wide(a) * _wide(b), set()),
    "mad.lo": (lambda a, b, c: a * b + c, set()),
    "min": (np.minimum, set()),
    "max": (np.maximum, set()),
    "neg": (np.negative, set()),
    "abs": (np.abs, set()),
    "and": (np.bitwise_and, set()),
    "or": (np.bitwise_or, set()),
    "xor": (np.bitwise_xor, set()),
    "not": (_negated, set()),
    "shl": (lambda a, b: a << b.astype(a.dtype), {1}),
    "shr": (lambda a, b: a >> b.astype(a.dtype), {1}),
    "bfe": (_extract, {1, 2}),
    "bfi": (_insert, {2, 3}),
    "shf.l.wrap": (_funnel(True), {2}),
    "shf.r.wrap": (_funnel(False), {2}),
    "prmt": (_permute, {2}),
    "lop3": (_logic, {3}),
    "cvta.to.global": (lambda a: a, set()),
}
COMPARED: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMPARED |= {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
ATOMIC: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "min": min,
    "max": max,
    "exch": lambda old, value: value,
    "cas": lambda old, compared, value: value if old == compared else old,
}

REDUCED = {"add": np.add, "min": np.minimum, "max": np.maximum}
REDUCED |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _simple(program: Program, it: Instruction, mask: Array) -> None:
    function, of_u32 = SIMPLE[it.name]
    made, *operands = it.operands
    kinds = ["u32" if place in of_u32 else it.types[0] for place in range(len(operands))]
    values = [program.get(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]
    program.put(made, function(*values), mask)


def _mad_wide(program: Program, it: Instruction, mask: Array) -> None:
    made, left, right, added = it.operands
    kind = it.types[0]
    factors = [_wide(program.get(operand, kind)) for operand in (left, right)]
    more = program.get(added, f"{kind[0]}{2 * int(kind[1:])}")
    program.put(made, factors[0] * factors[1] + more, mask)


def _compare(program: Program, it: Instruction, mask: Array) -> None:
    made, left, right = it.operands
    values = [program.get(operand, it.types[0]) for operand in (left, right)]
    program.put(made, COMPARED[it.name.partition(".")[2]](*values), mask)


def _select(program: Program, it: Instruction, mask: Array) -> None:
    made, *either, chosen = it.operands
    picked = program.get(chosen, "pred")
    chosen_clean = program.clean
    values, clean = [], []
    for operand in either:
        program.clean = program.everyone
        values.append(program.get(operand, it.types[0]))
        clean.append(program.clean)
    program.clean = chosen_clean & np.where(picked, *clean)  # the other may have no value
    program.put(made, np.where(picked, *values), mask)


def _convert(program: Program, it: Instruction, mask: Array) -> None:
    made, operand = it.operands
    to, of = it.types
    values = program.get(operand, of, narrow=True).astype(TYPES[to])
    program.put(made, values, mask, widen=True)


def _move(program: Program, it: Instruction, mask: Array) -> None:
    made, operand = it.operands
    kind = it.types[0]
    parts = operand if isinstance(operand, tuple) else made if isinstance(made, tuple) else ()
    part = f"b{int(kind[1:]) // len(parts)}" if parts else kind
    if parts is operand:
        columns = np.stack([program.get(item, part) for item in operand], 1)
        program.put(made, columns.view(TYPES[kind])[:, 0], mask)
    elif parts:
        columns = program.get(operand, kind)[:, None].view(TYPES[part])
        for item, column in zip(made, columns.T, strict=True):
            program.put(item, column, mask)
    else:
        program.put(made, program.get(operand, kind), mask)


def _parameter(program: Program, it: Instruction, mask: Array) -> None:
    made, (name, offset) = it.operands
    kind = program.kinds.get(name)
    if kind is None or offset or TYPES[kind]().itemsize != TYPES[it.types[0]]().itemsize:
        raise Illegal(f"there is no such parameter: {name}+{offset}")
    program.put(made, program.get(program.params[name], kind), mask, widen=True)


def _load(program: Program, it: Instruction, mask: Array) -> None:
    made, where, *_ = it.operands
    made = made if isinstance(made, tuple) else (made,)
    dtype = np.dtype(TYPES[it.types[0]])
    size = dtype.itemsize * it.width
    if "shared" in it.name:
        places = program.addresses(where, mask, "u32")
        content = program.shared.load(places, size, program.warps[mask])
    else:
        places = program.addresses(where, mask, "u64")
        content = program.memory.load(places, size, "nc" in it.hints)
    for item, column in zip(made, content.view(dtype).T, strict=True):
        values = np.zeros(program.threads, dtype)
        values[mask] = column
        program.put(item, values, mask, widen=True)


def _store(program: Program, it: Instruction, mask: Array) -> None:
    where, given, *_ = it.operands
    given = given if isinstance(given, tuple) else (given,)
    kind = it.types[0]
    if len(given) != it.width:
        raise Illegal(f"{len(given)} values for {it.width}")
    columns = [program.get(item, kind, narrow=True)[mask] for item in given]
    content = np.stack(columns, 1).view(np.uint8)
    if "shared" in it.name:
        places = program.addresses(where, mask, "u32")
        program.shared.store(places, content, program.warps[mask])
    else:
        program.memory.store(program.addresses(where, mask, "u64"), content)


def _atomic(program: Program, it: Instruction, mask: Array) -> None:
    made, where, *given = (["_"] if it.name.startswith("red") else []) + list(it.operands)
    kind = it.types[0]
    operands = [program.get(operand, kind)[mask] for operand in given]
    before = np.zeros(program.threads, TYPES[kind])
    for place, address, *values in zip(
        np.flatnonzero(mask), program.addresses(where, mask, "u64"), *operands, strict=True
    ):
        at = np.array([address])
        old = program.memory.load(at, before.itemsize).view(before.dtype)[0, 0]
        new = before.dtype.type(ATOMIC[it.name.rpartition(".")[2]](old, *values))
        program.memory.store(at, np.array([[new]]).view(np.uint8))
        before[place] = old
    program.put(made, before, mask)


def _shuffle(program: Program, it: Instruction, mask: Array) -> None:
    made, operand, by, bound, members = it.operands
    program.whole_warps(mask, program.get(members, "u32"))
    by, bound = (program.get(item, "u32").astype(int) for item in (by, bound))
    program.demand(mask)
    by &= 31
    lane: Array = np.arange(program.threads) % WARP
    apart = bound >> 8 & 31
    last = lane & apart | bound & 31 & ~apart
    source = {
        "bfly": lane ^ by,
        "idx": lane & apart | by & 31 & ~apart,
        "up": lane - by,
        "down": lane + by,
    }[it.name.rpartition(".")[2]]
    inside = source >= last if it.name.endswith("up") else source <= last
    source = np.where(inside, source, lane)
    source += program.warps * WARP
    if not mask[source[mask]].all():
        raise Illegal("a value of a thread that is not here")
    made, _, found = made.partition("|")
    value = program.get(operand, it.types[0])[source]
    program.clean = program.clean[source]
    program.put(made, value, mask)
    program.clean = program.everyone
    if found:
        program.put(found, inside, mask)


def _reduce(program: Program, it: Instruction, mask: Array) -> None:
    made, operand, members = it.operands
    value = program.get(operand, it.types[0])
    members = program.get(members, "u32")
    program.demand(mask)
    program.whole_warps(mask, members)
    total = np.zeros_like(value)
    for warp in np.unique(program.warps[mask]):
        here = mask & (program.warps == warp)
        total[here] = REDUCED[it.name.rpartition(".")[2]].reduce(value[here], dtype=value.dtype)
    program.put(made, total, mask)


def _barrier(program: Program, it: Instruction, mask: Array) -> None:
    if mask is not program.everyone:
        raise Illegal("a barrier that not all threads reach")
    if it.operands[1:] not in ((), (program.threads,)):
        raise Illegal("a barrier for some threads only")
    program.shared.barrier()


def _warp_barrier(program: Program, it: Instruction, mask: Array) -> None:
    members = program.get(it.operands[0], "u32")
    program.demand(mask)
    program.whole_warps(mask, members)


def _policy(program: Program, it: Instruction, mask: Array) -> None:
    """Make what only a cache asks for."""
    program.put(it.operands[0], np.zeros(program.threads, np.uint64), mask)


def _nothing(program: Program, it: Instruction, mask: Array) -> None:
    """Order memory: programs run one after another here."""


HANDLERS: dict[str, Handler] = dict.fromkeys(SIMPLE, _simple)
HANDLERS |= dict.fromkeys((f"setp.{name}" for name in COMPARED), _compare)
HANDLERS |= {"mad.wide": _mad_wide, "selp": _select, "cvt": _convert, "mov": _move}
HANDLERS |= {"ld.param": _parameter, "ld.global": _load, "ld.shared": _load}
HANDLERS |= {"st.global": _store, "st.shared": _store}
HANDLERS |= dict.fromkeys((f"atom.global.{name}" for name in ATOMIC), _atomic)
HANDLERS |= dict.fromkeys((f"red.global.{name}" for name in ATOMIC), _atomic)
HANDLERS |= {f"shfl.sync.{way}": _shuffle for way in ("bfly", "idx", "up", "down")}
HANDLERS |= dict.fromkeys((f"redux.sync.{name}" for name in REDUCED), _reduce)
HANDLERS |= {"bar.sync": _barrier, "barrier.sync": _barrier, "bar.warp.sync": _warp_barrier}
HANDLERS |= {f"createpolicy.fractional.L2::evict_{when}": _policy for when in ("first", "last")}
HANDLERS |= {"fence": _nothing, "membar.gl": _nothing}
