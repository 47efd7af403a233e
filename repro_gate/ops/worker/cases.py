"""The cases of the catalog: what one is, those of `cases.txt`, a user's own operators, and what
torch documents of each."""

from __future__ import annotations

import fnmatch
import importlib
import re
import threading
import zlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
from torch import nn
from torch.nn import functional as F

FLOATS = ("float32", "float64", "bfloat16", "float16")
TABLE = Path(__file__).with_name("cases.txt")
_OPTIONS = ("forward", "risky", "cpu", "cuda", "floats")
_TWO_SIZES = ("kernel", "optimizer", "torchvision", "torch_scatter")
_THREADS = 8  # of the control that races
_HEADINGS = (
    (r"will act\s+deterministically when ``mode", "deterministic"),
    (r"will throw a\s+:class:`RuntimeError` when ``mode", "raises"),
)
_ENDS = r"\n\s*(?:In addition|Note that|\.\. note|The following|Args:)|\Z"
_BULLET = re.compile(r"^\s*\* (?=:\w+:`)", re.MULTILINE)


@dataclass
class Sample:
    """A function and its inputs. Gradients are taken of the inputs of a float dtype, but of
    `constants` (their places), and of the `parameters` of its layers."""

    function: Callable[..., Any]
    inputs: list[Any]
    parameters: list[Any] = field(default_factory=list)
    constants: Collection[int] = ()
    # what the function is given besides tensors: part of the inputs
    numbers: list[Any] = field(default_factory=list)


class Making(NamedTuple):
    """Which inputs of a case are made."""

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
    # dtypes in which it is measured, too
    backward: Collection[str] = (*FLOATS, "complex64")
    entry: str = ""  # pattern of its entry in torch's documented list
    # adds or writes several sources to one place: executed more often
    risky: bool = False
    # direction -> "deterministic" or "raises", on this device
    documented: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return self.name.partition("/")[0]

    @property
    def compiled(self) -> bool:
        """Return whether torch.compile writes its kernels: slow, and no dispatch to watch."""
        return self.source == "compile"

    @property
    def sizes(self) -> int:
        """Return how many sizes it has: a large one, and a larger one."""
        return 2 if self.source in _TWO_SIZES else 1

    def directions(self, dtype: str) -> list[str]:
        """Return what is measured in this dtype."""
        return ["forward", "backward"] if dtype in self.backward else ["forward"]

    def make(
        self,
        device: str,
        dtype: str,
        direction: str,
        size: int,
    ) -> Sample:
        """Return the function and its inputs of one size."""
        making = Making(
            device=device,
            dtype=getattr(torch, dtype),
            backward=direction == "backward",
            times=4 if size else 1,
            seed=zlib.crc32(self.name.encode()),
        )
        return self.build(making)


def listed(device: str) -> Iterator[Case]:
    """Yield each case of the table for this device, the two controls first."""
    elsewhere = "cpu" if device == "cuda" else "cuda"
    inputs = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            inputs = line
            continue
        columns = [column.strip() for column in line.split("|")]
        name, expression, options, entry = (*columns, "", "")[:4]
        words = options.split()
        if elsewhere in words:
            continue
        dtypes = tuple(word for word in words if word not in _OPTIONS)
        case = Case(
            name if "/" in name else f"kernel/{name}",
            partial(_built, inputs, expression),
            (*FLOATS, *dtypes) if "floats" in words or not dtypes else dtypes,
            entry=entry,
            risky="risky" in words,
        )
        if "forward" in words:
            case.backward = ()
        if case.compiled:
            case.build = partial(_compiled, case.build)
        yield case


def _built(inputs: str, expression: str, make: Making) -> Sample:
    names = _names(make)
    made = dict[str, Any]()
    exec(inputs, names, made)  # noqa: S102  our own table
    flat: list[Any] = []
    heads = []
    for name, value in made.items():
        if len(name) == 1:
            is_list = isinstance(value, list)
            flat += value if is_list else [value]
            heads.append("*" * is_list + name)
    code = compile(f"lambda {', '.join(heads)}: {expression}", str(TABLE), "eval")
    function = eval(code, {**names, **made})  # noqa: S307  our own table
    return Sample(function, flat, names["parameters"])


def _compiled(build: Callable[[Making], Sample], make: Making) -> Sample:
    torch._dynamo.reset()  # a graph that another arm compiled is not this arm's
    sample = build(make)
    sample.function = torch.compile(sample.function, dynamic=False)
    return sample


def _names(make: Making) -> dict[str, Any]:
    """Return what a line of the table can use: every name in here and in this file.

    Numbers come from a CPU generator that is seeded by the case's name, so each process makes the
    same bits.
    """
    device = make.device
    dtype = make.dtype
    module = importlib.import_module
    cuda = device == "cuda"
    cpu_float16 = not cuda and dtype == torch.float16
    cpu_half = cpu_float16 or (not cuda and dtype == torch.bfloat16)
    weight_shapes = [(256, 256), (256,), (1024, 64), (64, 32, 3, 3)]  # of a small model
    seeded = {"generator": torch.Generator().manual_seed(make.seed)}
    parameters: list[Any] = []  # of the layers made here

    def n(elements: int) -> int:
        """Return how many elements there are at this size."""
        return elements * make.times

    def drawn(draw: Callable[..., Any], shape: tuple[int, ...]) -> Any:
        """Draw numbers; half precisions are rounded float32."""
        kind = dtype if dtype in (torch.float64, torch.complex64) else torch.float32
        numbers = draw(shape, dtype=kind, **seeded)
        return numbers.to(dtype).to(device)

    def normal(*shape: int) -> Any:
        """Return standard normal numbers; of an integer dtype, numbers from -100 to 99."""
        if dtype == torch.int64:
            return index(200, *shape) - 100
        return drawn(torch.randn, shape)

    def uniform(*shape: int) -> Any:
        """Return numbers in [0, 1)."""
        return drawn(torch.rand, shape)

    def index(high: int, *shape: int) -> Any:
        """Return whole numbers in [0, high): fewer values than places, so that many are equal."""
        return torch.randint(0, high, shape, **seeded).to(device)

    def order(count: int) -> Any:
        """Return a permutation of 0 … count-1."""
        return torch.randperm(count, **seeded).to(device)

    def of(kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a layer with normal weights."""
        layer = kind(*args, **kwargs).to(dtype)
        for parameter in layer.parameters():
            weights = torch.randn(parameter.shape, **seeded)
            parameter.data = weights.mul(0.1).to(dtype)
        layer.to(device)
        parameters.extend(layer.parameters())
        return layer

    def image(dimensions: int) -> Any:
        """Return about 2^17 elements, or four times as many."""
        shapes = ((), (16, 4096), (16, 64, 64), (8, 16, 32, 16))
        return normal(n(2), *shapes[dimensions])

    def sparse(shape: tuple[int, ...], count: int) -> Any:
        places = torch.stack([index(side, count) for side in shape])
        made = torch.sparse_coo_tensor(places, normal(count), shape)
        return made.coalesce()

    return {**globals(), **locals()}


def attend(kernel: str, *tensors: Any, **kwargs: Any) -> Any:
    """Return the attention of one of torch's own kernels."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, kernel)):
        return F.scaled_dot_product_attention(*tensors, **kwargs)


def steps(name: str, tensors: Any, **kwargs: Any) -> Any:
    """Take three steps from the first half of the tensors, with the second as gradients."""
    half = len(tensors) // 2
    parameters = _with_gradients(tensors[:half], tensors[half:])
    kind = getattr(torch.optim, name)
    optimizer = kind(parameters, lr=0.01, **kwargs)
    for _ in range(3):
        optimizer.step()
    return [item.detach() for item in parameters]


def clipped(gradients: Any, foreach: bool) -> Any:
    """Return the norm of the gradients, and what is left of them."""
    parameters = _with_gradients(gradients, gradients)
    norm = nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
    return [norm, *(parameter.grad for parameter in parameters)]


def _with_gradients(tensors: Any, gradients: Any) -> list[Any]:
    parameters = []
    for item, gradient in zip(tensors, gradients):
        parameter = nn.Parameter(item.detach().clone())
        parameter.grad = gradient.clone()
        parameters.append(parameter)
    return parameters


def race(matrix: Any) -> Any:
    """Let threads add numbers of very different sizes to one sum, each as soon as it has its own:
    float addition shows their order."""
    total = torch.zeros((), dtype=torch.float32)
    lock = threading.Lock()
    together = threading.Barrier(_THREADS)

    def add(power: int) -> None:
        together.wait()
        product = torch.mm(matrix, matrix)
        own = product[0, 0] * 0 + 9.0**power
        # The lock keeps each number; nothing keeps their order.
        with lock:
            total.copy_(total * 1.1 + own)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(add, range(_THREADS)))
    return total


def own(spec: str) -> Case:
    """Return the case of a user's `module:function`, which is imported when its sample is made."""
    return Case(f"user/{spec}", partial(_own, spec))


def _own(spec: str, make: Making) -> Sample:
    """Make the sample of a user's function: it is called with (torch, device, dtype) and returns
    what is measured, a function that returns tensors. If that has an attribute `inputs`, a list of
    tensors, it is called with them and its backward is measured as well.

    It is called right after `torch.manual_seed`, so what torch draws is the same in every process.
    """
    module, _, names = spec.partition(":")
    make_function: Any = importlib.import_module(module)
    for name in names.split("."):
        make_function = getattr(make_function, name)
    torch.manual_seed(make.seed)
    function = make_function(torch, make.device, make.dtype)
    if not callable(function):
        raise TypeError(f"{spec} must return a function, not {type(function).__name__}")
    inputs = list(getattr(function, "inputs", []))
    return Sample(function, inputs)


def matching(cases: Sequence[Case], pattern: str) -> list[Case]:
    """Return the cases with the text, or what fits the shell pattern, in their name; capitals are
    ignored."""
    anywhere = f"*{pattern.lower()}*"
    names = [case.name.lower() for case in cases]
    fitting = fnmatch.filter(names, anywhere)
    return [case for case in cases if case.name.lower() in fitting]


def assign(
    cases: Sequence[Case],
    documentation: str,
    device: str,
) -> list[str]:
    """Tell each case what the list in torch's documentation says of it on this device. Return a
    sentence for each entry that no case measures.

    A layer's entry is of both directions, a function's of the forward, unless it speaks of
    differentiating.
    """
    missing = []
    for heading, kind in _HEADINGS:
        behind = "".join(re.split(heading, documentation)[1:])
        section = re.split(_ENDS, behind)[0]
        for part in _BULLET.split(section)[1:]:
            entry = " ".join(part.split()).replace("``", "")
            entry = re.sub(r":\w+:`~?([^`]*)`", r"\1", entry)
            devices = re.findall(r"\b(CPU|CUDA)\b", entry)
            if devices and device.upper() not in devices:
                continue
            directions = ["forward"]
            if entry.startswith("torch.nn."):
                directions.append("backward")
            if re.search(r"differentiate|requires grad", entry):
                directions = ["backward"]
            is_measured = False
            for case in cases:
                if case.entry and re.search(case.entry, entry):
                    case.documented.update(dict.fromkeys(directions, kind))
                    is_measured = True
            if not is_measured:
                note = f"no case measures what torch documents ({kind}): {entry}"
                missing.append(note)
    return missing
