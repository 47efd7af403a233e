"""The tree of an unpickled checkpoint turned into leaves: what torch, numpy and the standard library write is known by name here.
 A known constructor (`_rebuild_tensor_v2`, `OrderedDict`, numpy's `_reconstruct`, …) becomes the leaf or container
that a person knows; anything else becomes a leaf with the name of its class, and below it its arguments, items and state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from repro_gate.trace.artifacts import numpy_pickle
from repro_gate.trace.artifacts.interface import MAX_NAME, MAX_SIZE, Leaf, Unreadable, on_time
from repro_gate.trace.artifacts.pickle_tree import Call, Global, Members, Node, Pairs, Persistent
from repro_gate.trace.artifacts.strided import Budget, Layout
from repro_gate.trace.artifacts.tree import Tree, binary, floating, integer, join, text

# Bytes of one item, and of the part of it that a machine of the other byte order turns round. Sub-byte types are compared as storages.
DTYPES = {
    "float64": (8, 8),
    "float32": (4, 4),
    "float16": (2, 2),
    "bfloat16": (2, 2),
    "int64": (8, 8),
    "int32": (4, 4),
    "int16": (2, 2),
    "int8": (1, 1),
    "uint64": (8, 8),
    "uint32": (4, 4),
    "uint16": (2, 2),
    "uint8": (1, 1),
    "bool": (1, 1),
    "complex32": (4, 2),
    "complex64": (8, 4),
    "complex128": (16, 8),
    "float8_e4m3fn": (1, 1),
    "float8_e5m2": (1, 1),
    "float8_e4m3fnuz": (1, 1),
    "float8_e5m2fnuz": (1, 1),
    "float8_e8m0fnu": (1, 1),
    "qint8": (1, 1),
    "quint8": (1, 1),
    "qint32": (4, 4),
}
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "untyped",
}
_MAPPINGS = frozenset(("collections.OrderedDict", "collections.defaultdict", "collections.Counter", "builtins.dict"))
_LARGE = 1024  # bytes of a value that is worth remembering
_SEQUENCES = frozenset(("torch.Size", "builtins.list", "builtins.tuple", "collections.deque"))

# Digest of a tensor in a storage: key of the storage, dtype, layout. The storage's reader, `torch_zip`, gives it.
ReadTensor = Callable[[str, str, Layout], Leaf]


class Walk:
    """One walk over a tree: where leaves go, how tensors are read, which containers are open (for cycles), what was met before."""

    def __init__(self, tree: Tree, read_tensor: ReadTensor, budget: Budget) -> None:
        self.tree, self.read_tensor, self.budget = tree, read_tensor, budget
        self.open: dict[int, str] = {}
        self.known: dict[int, tuple[Node, Leaf]] = {}  # by id: a pickle may refer to one large value very often


def walk(state: Walk, name: str, node: Node, depth: int = 0) -> None:
    """Add the leaves of `node` under `name`. Raises Unreadable for a tensor that cannot be, or above the limits."""
    on_time()
    leaf = _scalar(state, node)
    if leaf is not None:
        state.tree.add(name, leaf)
        return
    if id(node) in state.open:
        state.tree.add(name, text(state.open[id(node)], "reference"))
        return
    state.open[id(node)] = name
    if isinstance(node, Persistent):
        _storage(state, name, node)
    elif isinstance(node, Call):
        _call(state, name, node, depth)
    elif isinstance(node, Pairs):
        _pairs(state, name, "dict", node, depth)
    elif isinstance(node, Members):
        _items(state, name, "set", sorted(node, key=partial(_order, state)), depth)
    else:
        _items(state, name, type(node).__name__, node, depth)
    del state.open[id(node)]


def _scalar(state: Walk, node: Node) -> Leaf | None:
    """The leaf of a plain value, each large one made once."""
    if id(node) in state.known:
        return state.known[id(node)][1]
    leaf = _plain_leaf(node)
    if leaf is not None and isinstance(node, (str, bytes, bytearray, int)) and sys.getsizeof(node) > _LARGE:
        state.known[id(node)] = node, leaf
    return leaf


def _plain_leaf(node: Node) -> Leaf | None:
    if isinstance(node, str):
        return text(node)
    if isinstance(node, int):
        return integer(node)
    if isinstance(node, float):
        return floating(node)
    if isinstance(node, (bytes, bytearray)):
        return binary(node, type(node).__name__)
    if node is None:
        return text("None", "None")
    return text(_plain(node), "class") if isinstance(node, Global) else None


def _order(state: Walk, member: Node) -> tuple[str, str]:
    """A set's order follows the hashes of one process: scalars are put into an order of their own, the rest stays as it is."""
    leaf = _scalar(state, member)
    return ("", "") if leaf is None else (str(leaf.dtype), (leaf.value or "").rjust(24) + leaf.digest)


def _pairs(state: Walk, name: str, kind: str, pairs: Pairs, depth: int) -> None:
    keys: list[str] = []
    for key, value in _last(pairs):
        label = _key(state, key)
        keys.append(f"{type(key).__name__}:{label}")
        walk(state, join(name, label, depth), value, depth + 1)
    state.tree.structure(name, f"{kind} " + " ".join(sorted(keys)))
    if not pairs:
        state.tree.add(name, text("{}", kind))


def _last(pairs: Pairs) -> Iterator[tuple[Node, Node]]:
    """Pairs as a dict would hold them: of text keys that come twice, the last value at the first place."""
    final = {key: value for key, value in pairs if isinstance(key, str)}
    seen: set[str] = set()
    for key, value in pairs:
        if not isinstance(key, str):
            yield key, value
        elif key not in seen:
            seen.add(key)
            yield key, final[key]


def _items(state: Walk, name: str, kind: str, items: list[Node], depth: int) -> None:
    for place, item in enumerate(items):
        walk(state, join(name, place, depth), item, depth + 1)
    state.tree.structure(name, f"{kind} {len(items)}")
    if not items:
        state.tree.add(name, text("()" if kind == "tuple" else "[]", kind))


def _key(state: Walk, key: Node, depth: int = 0) -> str:
    """A dict's key as text: `0`, `weight`, `(1, 2)`. Raises Unreadable for one that is longer than a name may be."""
    if isinstance(key, str):
        label = key
    elif isinstance(key, tuple) and depth < 3:
        label = "(" + ", ".join(_key(state, part, depth + 1) for part in key[:16]) + ")"
    else:
        leaf = _scalar(state, key)
        label = f"<{type(key).__name__}>" if leaf is None else leaf.value or leaf.digest[:16]
    if len(label) > MAX_NAME:
        raise Unreadable(f"a name is longer than {MAX_NAME:,} characters")
    return label


def _plain(function: Node) -> str:
    """A global's name, Python 2's and numpy 1's modules by the names of today."""
    name = str(function) if isinstance(function, Global) else ""
    for old, new in (("__builtin__.", "builtins."), ("numpy._core.", "numpy.core.")):
        if name.startswith(old):
            name = new + name[len(old) :]
    return name


def _call(state: Walk, name: str, call: Call, depth: int) -> None:
    function = _plain(call.function)
    arguments = call.arguments if isinstance(call.arguments, tuple) else (call.arguments,)
    if _torch(state, name, function, arguments, call, depth):
        return
    leaf = _value(function, arguments, call)
    array = None if leaf is not None else numpy_pickle.array_of(function, arguments, call, state.budget)
    if leaf is not None or array is not None:
        made = leaf or cast(Leaf, array)
        state.known[id(call)] = call, made
        state.tree.add(name, made)
    elif function in _MAPPINGS and not (arguments and isinstance(arguments[0], (list, tuple)) and arguments[0]):
        _pairs(state, name, function.rpartition(".")[2], call.pairs, depth)
        _rest(state, name, call, depth, arguments=arguments if function == "collections.defaultdict" else (), pairs=False)
    elif function in _SEQUENCES and len(arguments) <= 1:
        given = arguments[0] if arguments and isinstance(arguments[0], (list, tuple)) else []
        _items(state, name, function.rpartition(".")[2], [*given, *call.items], depth)
    elif function in ("builtins.set", "builtins.frozenset") and len(arguments) == 1 and isinstance(arguments[0], list):
        _items(state, name, "set", sorted([*arguments[0], *call.items], key=partial(_order, state)), depth)
    else:
        state.tree.add(name, text(function or "(an object)", "class"))
        _rest(state, name, call, depth, arguments=arguments)


def _rest(state: Walk, name: str, call: Call, depth: int, arguments: tuple[Node, ...] = (), pairs: bool = True) -> None:
    """What no rule above has shown: arguments, items, state. State that is a dict shows its attributes under the object's own name."""
    if not isinstance(call.function, Global):
        walk(state, join(name, "function", depth), call.function, depth + 1)
    for place, argument in enumerate(arguments):
        if not (isinstance(argument, tuple) and not argument):
            walk(state, join(name, f"args.{place}", depth), argument, depth + 1)
    if call.pairs and pairs:
        _pairs(state, name, "items", call.pairs, depth)
    if call.items:
        _items(state, name, "items", call.items, depth)
    for built in call.state:
        if isinstance(built, Pairs) and built:
            _pairs(state, name, "state", built, depth)
        else:
            walk(state, join(name, "state", depth), built, depth + 1)


def _value(function: str, arguments: tuple[Node, ...], call: Call) -> Leaf | None:
    """Calls that stand for one plain value."""
    if call.state or call.items or call.pairs:
        return None
    data = numpy_pickle.bytes_of(call)
    if data is not None:
        return binary(data)
    given = (numpy_pickle.bytes_of(argument) if isinstance(argument, Call) else argument for argument in arguments)
    plain = [argument for argument in given if isinstance(argument, (str, int, float, bytes, bytearray))]
    if len(plain) != len(arguments):
        return None
    if function == "builtins.bytearray" and all(isinstance(part, (bytes, bytearray)) for part in plain):
        return binary(b"".join(cast("list[bytes]", plain)), "bytearray")
    if function == "builtins.complex" and len(plain) == 2 and all(isinstance(part, float) for part in plain):
        parts = [floating(cast(float, part)) for part in plain]
        return text(f"({parts[0].value}, {parts[1].value})", "complex")
    if function == "torch.device" and plain and isinstance(plain[0], str):
        return text(":".join(str(part) for part in plain), "device")
    if function == "torch.serialization._get_layout" and len(plain) == 1 and isinstance(plain[0], str):
        return text(plain[0], "layout")
    return None


def _torch(state: Walk, name: str, function: str, arguments: tuple[Node, ...], call: Call, depth: int) -> bool:
    """Tensors and parameters. False where the call is none of them."""
    maker = function.removeprefix("torch._utils.") if function.startswith("torch._utils.") else ""
    if maker in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3") and len(arguments) >= 4:
        given = arguments[6] if maker.endswith("v3") and len(arguments) > 6 else None
        metadata = arguments[7:8] if maker.endswith("v3") else arguments[6:7]
        flags = sorted(str(key) for key, on in metadata[0] if on is True) if metadata and isinstance(metadata[0], Pairs) else []
        state.tree.structure(name, f"tensor {arguments[4:5] == (True,)}")
        _tensor(state, name, arguments, given, flags)
    elif maker == "_rebuild_qtensor" and len(arguments) >= 5:
        _tensor(state, name, arguments, None, [])
        walk(state, join(name, "quantizer", depth), arguments[4], depth + 1)
    elif (
        maker
        in (
            "_rebuild_parameter",
            "_rebuild_parameter_with_state",
            "_rebuild_device_tensor_from_numpy",
            "_rebuild_device_tensor_from_cpu_tensor",
        )
        and arguments
    ):
        state.tree.structure(name, f"{maker} {arguments[1:2] == (True,)}")
        walk(state, name, arguments[0], depth + 1)
        if maker == "_rebuild_parameter_with_state" and len(arguments) > 3:
            walk(state, join(name, "state", depth), arguments[3], depth + 1)
    elif function == "torch._tensor._rebuild_from_type_v2" and len(arguments) == 4:
        state.tree.structure(name, f"tensor of type {_key(state, arguments[1])}")
        walk(state, name, Call(arguments[0], arguments[2]), depth + 1)
        if not (isinstance(arguments[3], (Pairs, tuple)) and not arguments[3]):
            walk(state, join(name, "state", depth), arguments[3], depth + 1)
    else:
        return False
    _rest(state, name, Call(Global("torch", maker), (), call.state, call.pairs, call.items), depth)
    return True


def _tensor(state: Walk, name: str, arguments: tuple[Node, ...], given: Node, flags: list[str]) -> None:
    dtype, key, _ = _described(arguments[0])
    if given is not None:
        if not isinstance(given, Global):
            raise Unreadable(f"the dtype of {name!r} is malformed")
        dtype = given.name
    offset, shape, strides = arguments[1], _whole(arguments[2]), _whole(arguments[3])
    if shape is None or strides is None or len(shape) != len(strides) or len(shape) > 64 or type(offset) is not int or offset < 0:
        raise Unreadable(f"the layout of tensor {name!r} is malformed")
    layout = Layout(shape, strides, DTYPES.get(dtype, (0, 0))[0], offset)
    state.tree.add(name, state.read_tensor(key, dtype + "".join(f" ({flag})" for flag in flags), layout))


def _storage(state: Walk, name: str, node: Persistent) -> None:
    dtype, key, count = _described(node)
    dtype = "uint8" if dtype == "untyped" else dtype
    state.tree.add(name, state.read_tensor(key, dtype, Layout((count,), (1,), DTYPES.get(dtype, (0, 0))[0])))


def _described(node: Node) -> tuple[str, str, int]:
    """dtype, key and number of items of a storage: `("storage", class, key, location, count)`."""
    pid = node.pid if isinstance(node, Persistent) else None
    if not (
        isinstance(pid, tuple)
        and len(pid) >= 5
        and pid[0] == "storage"
        and isinstance(pid[1], Global)
        and isinstance(pid[2], str)
        and type(pid[4]) is int
        and 0 <= pid[4] < MAX_SIZE
    ):
        raise Unreadable("a storage is malformed")
    return _STORAGES.get(pid[1].name, pid[1].name), pid[2], pid[4]


def _whole(node: Node) -> tuple[int, ...] | None:
    """A tuple, list or torch.Size of non-negative integers."""
    if isinstance(node, Call) and _plain(node.function) == "torch.Size" and isinstance(node.arguments, tuple) and len(node.arguments) == 1:
        node = node.arguments[0]
    if isinstance(node, (tuple, list)) and all(type(size) is int and 0 <= size < MAX_SIZE for size in node):
        return tuple(node)
    return None
