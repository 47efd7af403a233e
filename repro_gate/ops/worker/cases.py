"""The cases of the catalog: those of `cases.txt`, PyTorch's own samples, or a user's operators."""

from __future__ import annotations

import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator

from . import samples
from .case import FLOATS, Case, Making, Sample

TABLE = Path(__file__).with_name("cases.txt")
_OPTIONAL = ("torchvision", "torch_scatter")  # packages that may be missing
_OPTIONS = ("forward", "risky", "cpu", "cuda", "floats")
_THREADS = 8  # of the control that races


def catalog(torch: Any, device: str, request: dict[str, Any]) -> tuple[list[Case], list[str]]:
    """Return the two controls and the cases of a request, and a note for each thing that cannot be
    measured. With `user` in the request, those functions alone."""
    missing = [name for name in _OPTIONAL if find_spec(name) is None]
    notes = ["%s is not installed" % name for name in missing]
    found = [case for case in _listed(device) if case.name.partition("/")[0] not in missing]
    if request.get("user"):
        own = [Case("user/" + spec, partial(_own, spec), sizes=1) for spec in request["user"]]
        return found[:2] + own, []
    rows = request.get("rows")
    # importing the samples takes seconds
    if rows is None or any(name.startswith("opinfo/") for name, *_ in rows):
        listed, said = samples.cases(torch, device)
        found, notes = found + listed, notes + said
    return found, notes


def _listed(device: str) -> Iterator[Case]:
    """Yield each case of the table for this device."""
    inputs = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            inputs = line
            continue
        columns = [column.strip() for column in line.split("|")]
        name, expression, options, entry = (*columns, "", "")[:4]
        words = options.split()
        dtypes = tuple(word for word in words if word not in _OPTIONS)
        dtypes = (*FLOATS, *dtypes) if "floats" in words else dtypes or FLOATS
        name = name if "/" in name else "kernel/" + name
        if device not in words and {"cpu", "cuda"} & set(words):
            continue
        case = Case(
            name,
            partial(_built, inputs, expression, name.startswith("compile/")),
            dtypes=dtypes,
            entry=entry,
            risky="risky" in words,
        )
        case.sizes = 1 if name.startswith(("compile/", "control/")) else 2
        case.backward = () if "forward" in words else case.backward
        yield case


def _built(inputs: str, expression: str, compiled: bool, make: Making) -> Sample:
    names, made = _names(make), dict[str, Any]()
    exec(inputs, names, made)  # noqa: S102  our own table
    given = {name: value for name, value in made.items() if len(name) == 1}
    flat: list[Any] = []
    for value in given.values():
        flat += value if isinstance(value, list) else [value]
    heads = ("*" * isinstance(value, list) + name for name, value in given.items())
    code = compile("lambda %s: %s" % (", ".join(heads), expression), str(TABLE), "eval")
    function = eval(code, {**names, **made})  # noqa: S307  our own table
    if compiled:
        make.torch._dynamo.reset()  # a graph that another arm compiled is not this arm's
        function = make.torch.compile(function, dynamic=False)
    return Sample(function, flat, names["parameters"])


def _names(make: Making) -> dict[str, Any]:
    """Return what a line of the table can use: every name in here.

    Numbers come from a CPU generator that is seeded by the case's name, so each process makes the
    same bits.
    """
    torch, device, dtype, module = make.torch, make.device, make.dtype, importlib.import_module
    nn, F = torch.nn, torch.nn.functional  # noqa: N806  as everybody calls it
    cuda = device == "cuda"
    cpu_float16 = not cuda and dtype == torch.float16
    cpu_half = cpu_float16 or (not cuda and dtype == torch.bfloat16)
    weight_shapes = [(256, 256), (256,), (1024, 64), (64, 32, 3, 3)]  # of a small model
    generator = torch.Generator().manual_seed(make.seed)
    parameters: list[Any] = []  # of the layers made here

    def n(elements: int) -> int:
        """Return how many elements there are at this size."""
        return elements * make.times

    def drawn(draw: Callable[..., Any], shape: tuple[int, ...]) -> Any:
        """Draw numbers; half precisions are rounded float32."""
        kind = dtype if dtype in (torch.float64, torch.complex64) else torch.float32
        return draw(shape, generator=generator, dtype=kind).to(dtype).to(device)

    def normal(*shape: int) -> Any:
        """Return standard normal numbers; of an integer dtype, numbers from -100 to 99."""
        if dtype == torch.int64:
            return torch.randint(-100, 100, shape, generator=generator).to(device)
        return drawn(torch.randn, shape)

    def uniform(*shape: int) -> Any:
        """Return numbers in [0, 1)."""
        return drawn(torch.rand, shape)

    def index(high: int, *shape: int) -> Any:
        """Return whole numbers in [0, high): far fewer values than places, so that many are
        equal."""
        return torch.randint(0, high, shape, generator=generator).to(device)

    def order(count: int) -> Any:
        """Return a permutation of 0 … count-1."""
        return torch.randperm(count, generator=generator).to(device)

    def of(kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a layer with normal weights."""
        layer = kind(*args, **kwargs).to(dtype)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator).mul_(0.1))
        layer = layer.to(device)
        parameters.extend(layer.parameters())
        return layer

    def image(dimensions: int) -> Any:
        """About 2^17 elements, or four times as many."""
        shapes = {1: (16, 4096), 2: (16, 64, 64), 3: (8, 16, 32, 16)}
        return normal(n(2), *shapes[dimensions])

    def sparse(shape: tuple[int, ...], count: int) -> Any:
        places = torch.stack([index(side, count) for side in shape])
        return torch.sparse_coo_tensor(places, normal(count), shape).coalesce()

    def attend(kernel: str, *tensors: Any, **kwargs: Any) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, kernel)):
            return F.scaled_dot_product_attention(*tensors, **kwargs)

    def in_streams(x: Any, y: Any) -> Any:
        """Four products, each in a CUDA stream of its own, where it may get its own workspace."""
        found = []
        for stream in [torch.cuda.Stream() for _ in range(4)] if cuda else [None] * 4:
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found.append(torch.mm(x, y))
        if cuda:
            torch.cuda.synchronize()
        return found

    def steps(name: str, tensors: Any, **kwargs: Any) -> Any:
        """Three steps from the first half of the tensors, with the second as gradients."""
        half = len(tensors) // 2
        parameters = [nn.Parameter(item.detach().clone()) for item in tensors[:half]]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **kwargs)
        for step in range(3):
            for parameter, gradient in zip(parameters, tensors[half:]):
                parameter.grad = gradient * (step + 1)
            optimizer.step()
        return [item.detach() for item in parameters]

    def clipped(gradients: Any, foreach: bool) -> Any:
        parameters = [nn.Parameter(torch.zeros_like(item)) for item in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
        return [norm, *(parameter.grad for parameter in parameters)]

    def race(matrix: Any) -> Any:
        """Threads add numbers of very different sizes to one sum, each as soon as it has its own:
        float addition shows their order."""
        total = torch.zeros((), dtype=torch.float32)
        lock, together = threading.Lock(), threading.Barrier(_THREADS)

        def add(number: float) -> None:
            together.wait()
            own = torch.mm(matrix, matrix)[0, 0] * 0 + number
            with lock:
                # the lock keeps each number; nothing keeps their order
                total.copy_(total * 1.1 + own)

        numbers = (3.0 ** (index * 2) + 0.1 for index in range(_THREADS))
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(add, numbers))
        return total

    return locals()


def _own(spec: str, make: Making) -> Sample:
    """Make the sample of a user's `module:function`: it is called with (torch, device, dtype) and
    returns what is measured, a function that returns tensors. If that has an attribute `inputs`, a
    list of tensors, it is called with them and its backward is measured as well.

    It is called right after `torch.manual_seed`, so what torch draws is the same in every process.
    """
    module, _, names = spec.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    make.torch.manual_seed(make.seed)
    function = found(make.torch, make.device, make.dtype)
    if not callable(function):
        kind = type(function).__name__
        raise TypeError("%s must return a function, not %s" % (spec, kind))
    return Sample(function, list(getattr(function, "inputs", [])))
