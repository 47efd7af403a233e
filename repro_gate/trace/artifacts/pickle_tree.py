"""A pickle read as data: a machine that knows the opcodes and cannot call anything.
 `pickle.Unpickler` with a guarded `find_class` still builds real objects, hashes what the file calls keys and trusts
sizes; here a global is two strings, a call is a record of what would have been called, a dict is a list of pairs, and the memo is a dict
of ours. So nothing is imported, called, hashed or allocated because the file says so. Opcodes are decoded by `pickletools.genops`.
"""

from __future__ import annotations

import io
import pickletools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from repro_gate.trace.artifacts.interface import Unreadable, on_time

MAX_PICKLE = 64 * 1024 * 1024  # bytes
MAX_OPCODES = 2_000_000  # a checkpoint of 1,000 tensors takes about 60,000
_MAX_LINE = 16 * 1024  # of the text opcodes of protocol 0; converting a decimal integer is quadratic in Python 3.10

Node = Any  # str, bytes, bytearray, bool, int, float, None, list, tuple, and the records below


class Pairs(list[Any]):
    """A dict: (key, value) pairs in the order in which they were set. Never hashed."""


class Members(list[Any]):
    """A set, its members in the order in which they were added."""


@dataclass(frozen=True)
class Global:
    """A class or function by name. Never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, eq=False)
class Persistent:
    """What `persistent_load` would have been asked for: a storage."""

    pid: Node


@dataclass(frozen=True, eq=False)
class Call:
    """What would have been made by calling `function`, and everything that was then done to it."""

    function: Node
    arguments: Node
    state: list[Node] = field(default_factory=list)  # one entry for each BUILD
    pairs: Pairs = field(default_factory=Pairs)  # from SETITEM(S)
    items: list[Node] = field(default_factory=list)  # from APPEND(S) and ADDITEMS


class _Lines(io.BytesIO):
    """Bytes whose lines end early: `pickletools` then finds no newline and refuses."""

    def readline(self, size: int | None = -1, /) -> bytes:
        return super().readline(_MAX_LINE if size is None or size < 0 else min(size, _MAX_LINE))


class _Machine:
    """The pickle machine's state: stack, marks, memo."""

    def __init__(self) -> None:
        self.stack: list[Node] = []
        self.marks: list[int] = []
        self.memo: dict[int, Node] = {}

    def since_mark(self) -> list[Node]:
        """Pop everything above the last mark, and the mark."""
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def tuple_of(self, count: int) -> None:
        """Replace the topmost `count` entries by a tuple of them."""
        if len(self.stack) < count:
            raise Unreadable("its pickle is malformed")
        taken = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(taken)


def load(data: bytes) -> Node:
    """The tree that a pickle describes. Raises Unreadable where it is malformed or above the limits."""
    if len(data) > MAX_PICKLE:
        raise Unreadable(f"its pickle is larger than {MAX_PICKLE // 2**20} MiB")
    machine = _Machine()
    try:
        for count, (name, argument) in enumerate(_opcodes(data)):
            on_time()
            if count >= MAX_OPCODES:
                raise Unreadable(f"its pickle has more than {MAX_OPCODES:,} opcodes")
            if name == "STOP":
                return machine.stack.pop()
            action = _ACTIONS.get(name)
            if action is not None:
                action(machine, argument)
            elif name in _VALUES:
                machine.stack.append(argument)
            elif name not in _IGNORED:
                raise Unreadable(f"its pickle uses the opcode {name}")
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise Unreadable(f"its pickle is malformed ({type(error).__name__})") from error
    raise Unreadable("its pickle has no end")


def _opcodes(data: bytes) -> Iterator[tuple[str, Node]]:
    with warnings.catch_warnings():  # of escapes in the text opcodes, which Python 2 took and Python 3 deprecates
        warnings.simplefilter("ignore")
        for opcode, argument, _ in pickletools.genops(_Lines(data)):
            yield opcode.name, argument


_VALUES = frozenset(
    (
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
    )
)
_IGNORED = frozenset(("PROTO", "FRAME"))
_Action = Callable[[_Machine, Node], None]


def _push(make: Callable[[], Node]) -> _Action:
    return lambda machine, _: machine.stack.append(make())


def _mark(machine: _Machine, _: Node) -> None:
    machine.marks.append(len(machine.stack))


def _pop(machine: _Machine, _: Node) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


def _pop_mark(machine: _Machine, _: Node) -> None:
    machine.since_mark()


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.stack.append(Global(module, name))


def _stack_global(machine: _Machine, _: Node) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise Unreadable("its pickle names a class by something that is no text")
    machine.stack.append(Global(module, name))


def _reduce(machine: _Machine, _: Node) -> None:
    arguments, function = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(Call(function, arguments))


def _new_extended(machine: _Machine, _: Node) -> None:
    named, arguments, function = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.stack.append(Call(function, (arguments, named)))


def _inst(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.stack.append(Call(Global(module, name), tuple(machine.since_mark())))


def _obj(machine: _Machine, _: Node) -> None:
    function, *arguments = machine.since_mark()
    machine.stack.append(Call(function, tuple(arguments)))


def _build(machine: _Machine, _: Node) -> None:
    state, made = machine.stack.pop(), machine.stack[-1]
    if not isinstance(made, Call):
        raise Unreadable("its pickle sets the state of a plain value")
    made.state.append(state)


def _extend(machine: _Machine, taken: list[Node]) -> None:
    target = machine.stack[-1]
    if isinstance(target, Call):
        target.items.extend(taken)
    elif isinstance(target, list) and not isinstance(target, Pairs):
        target.extend(taken)
    else:
        raise Unreadable("its pickle appends to something that is no list")


def _append(machine: _Machine, _: Node) -> None:
    _extend(machine, [machine.stack.pop()])


def _appends(machine: _Machine, _: Node) -> None:
    _extend(machine, machine.since_mark())


def _set_pairs(machine: _Machine, taken: list[Node]) -> None:
    target = machine.stack[-1]
    pairs = target.pairs if isinstance(target, Call) else target
    if not isinstance(pairs, Pairs) or len(taken) % 2:
        raise Unreadable("its pickle sets items of something that is no dict")
    pairs.extend(zip(taken[::2], taken[1::2]))


def _set_item(machine: _Machine, _: Node) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set_pairs(machine, [key, value])


def _put(machine: _Machine, place: int) -> None:
    machine.memo[place] = machine.stack[-1]


def _memoize(machine: _Machine, _: Node) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _get(machine: _Machine, place: int) -> None:
    machine.stack.append(machine.memo[place])


def _dict(machine: _Machine, _: Node) -> None:
    taken = machine.since_mark()
    machine.stack.append(Pairs())
    _set_pairs(machine, taken)


_ACTIONS: dict[str, _Action] = {
    "NONE": _push(lambda: None),
    "NEWTRUE": _push(lambda: True),
    "NEWFALSE": _push(lambda: False),
    "EMPTY_LIST": _push(list),
    "EMPTY_TUPLE": _push(tuple),
    "EMPTY_DICT": _push(Pairs),
    "EMPTY_SET": _push(Members),
    "MARK": _mark,
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "DICT": _dict,
    "FROZENSET": lambda machine, _: machine.stack.append(Members(machine.since_mark())),
    "APPEND": _append,
    "APPENDS": _appends,
    "ADDITEMS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: _set_pairs(machine, machine.since_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_extended,
    "INST": _inst,
    "OBJ": _obj,
    "BUILD": _build,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": _memoize,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "PERSID": lambda machine, argument: machine.stack.append(Persistent(argument)),
    "BINPERSID": lambda machine, _: machine.stack.append(Persistent(machine.stack.pop())),
    "BYTEARRAY8": lambda machine, argument: machine.stack.append(bytearray(argument)),
}
