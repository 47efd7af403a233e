"""The functions that are measured without a training: those of `known.txt`, and a user's own."""

from __future__ import annotations

import pkgutil
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch.nn import functional as F  # noqa: F401  the table uses it
from torch.utils._pytree import tree_leaves

from .measure import Call, Task

_TABLE = Path(__file__).with_name("known.txt")
_FLOATS = ("float32", "float64", "bfloat16", "float16")
_DIRECTIONS = ("forward", "backward")
_TIMES = {"small": 1, "large": 4}  # size -> elements, by those of the smaller one
_THREADS = 8  # of the control that races


def jobs(own: Sequence[str], known: bool) -> list[Task]:
    """Return the known calls if asked for, then the user's own, both behind the two controls."""
    lines = list(_lines()) if own or known else []
    found = list[Task]()
    for name, dtypes, directions, build in lines if known else lines[:2]:
        sizes = {"": 4} if name.startswith("control/") else _TIMES
        found += _forms(name, dtypes, directions, sizes, build)
    for spec in own:
        found += _forms(spec, _FLOATS, _DIRECTIONS, {"": 1}, partial(_own, spec))
    return found


def _forms(
    name: str,
    dtypes: Sequence[str],
    directions: Sequence[str],
    sizes: Mapping[str, int],
    build: Callable[..., Any],
) -> Iterator[Task]:
    for dtype, direction, size in product(dtypes, directions, sizes):
        make = partial(_call, name, build, dtype, direction, sizes[size])
        yield Task(make, name, f"{dtype} {direction} {size}".strip())


def _lines() -> Iterator[tuple[str, Sequence[str], Sequence[str], Callable[..., Any]]]:
    """Yield name, dtypes, directions and builder of each line of the table for this device."""
    elsewhere = "cpu" if torch.cuda.device_count() else "cuda"
    inputs = ""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            inputs = line
            continue
        name, expression, options = (*(it.strip() for it in line.split("|")), "")[:3]
        words = options.split()
        if elsewhere not in words:
            dtypes = _FLOATS[:1] if "float32" in words else _FLOATS
            directions = _DIRECTIONS[:1] if "forward" in words else _DIRECTIONS
            yield name, dtypes, directions, partial(_built, inputs, expression)


def _call(
    name: str, build: Callable[..., Any], dtype: str, direction: str, times: int
) -> Call:
    """Return the call of a function on its inputs, or of the gradient of its sum, weighted by
    numbers that repeat. If the flags refuse the forward, its backward is not measured with them."""
    torch.manual_seed(zlib.crc32(name.encode()))
    device = "cuda" if torch.cuda.device_count() else "cpu"
    function, inputs = build(device, getattr(torch, dtype), times)

    def fresh() -> list[Any]:
        return [item.detach().clone() for item in inputs]

    def forward(made: list[Any]) -> Any:
        with torch.no_grad():
            return function(*made)

    def graph() -> Any:
        made = fresh()
        sources = [item.requires_grad_() for item in made if item.is_floating_point()]
        found = tree_leaves(function(*made))
        outputs = [item for item in found if getattr(item, "requires_grad", False)]
        if not outputs:
            raise NotImplementedError("no output has a gradient")
        weights = [
            torch.linspace(-1, 1, it.numel()).to(it).view_as(it) for it in outputs
        ]
        return outputs, sources, weights

    def backward(made: Any) -> Any:
        return torch.autograd.grad(*made, allow_unused=True)

    return Call(fresh, forward) if direction == "forward" else Call(graph, backward)


def _built(inputs: str, expression: str, device: str, dtype: Any, times: int) -> Any:
    """Return the function of a line and its inputs, from the names below."""

    def n(elements: int) -> int:
        """Return how many elements there are at this size."""
        return elements * times

    def normal(*shape: int) -> Any:
        """Return standard normal numbers; half precisions are rounded float32."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return torch.randn(shape, dtype=wide).to(dtype).to(device)

    def index(high: int, *shape: int) -> Any:
        """Return whole numbers in [0, high): fewer values than places, so that many are equal."""
        return torch.randint(0, high, shape).to(device)

    names = {**globals(), **locals()}
    made = dict[str, Any]()
    exec(inputs, names, made)  # noqa: S102  our own table
    head = ", ".join(made)
    code = compile(f"lambda {head}: {expression}", str(_TABLE), "eval")
    return eval(code, names), list(made.values())  # noqa: S307  our own table


def race(matrix: Any) -> Any:
    """Let threads add numbers of very different sizes to one sum, each as soon as it has its own:
    float addition shows their order."""
    total = torch.zeros((), dtype=torch.float32)
    lock = threading.Lock()
    together = threading.Barrier(_THREADS)

    def add(power: int) -> None:
        together.wait()
        own = torch.mm(matrix, matrix)[0, 0] * 0 + 9.0**power
        # The lock keeps each number; nothing keeps their order.
        with lock:
            total.copy_(total * 1.1 + own)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(add, range(_THREADS)))
    return total


def _own(spec: str, device: str, dtype: Any, times: int) -> Any:
    """Return what a user's `module:function` gives for (torch, device, dtype), a function, and its
    attribute `inputs`, a list of tensors; without inputs it has no backward."""
    function = pkgutil.resolve_name(spec)(torch, device, dtype)
    if not callable(function):
        raise TypeError(f"{spec} must return a function, not {type(function).__name__}")
    return function, list(getattr(function, "inputs", []))
