"""The cases of the catalog: those of `cases.txt`, PyTorch's own samples, or a user's operators."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

from . import samples
from .case import FLOATS, Build, Case, Making

TABLE = Path(__file__).with_name("cases.txt")
_OPTIONAL = ("torchvision", "torch_scatter")  # packages that may be missing
_OPTIONS = ("forward", "risky", "cpu", "cuda")
_THREADS = 8  # of the control that races
_SHAPES = [(256, 256), (256,), (1024, 64), (64, 32, 3, 3)]  # of a small model's weights


def catalog(torch: Any, device: str, request: dict[str, Any]) -> tuple[list[Case], list[str]]:
    """Return the two controls and the cases of a request, and a note for each thing that cannot be
    measured. With `user` in the request, those functions alone."""
    missing = dict(filter(None, map(_unusable, _OPTIONAL)))
    notes = ["%s %s" % item for item in missing.items()]
    found = [case for case in _listed(device) if case.name.partition("/")[0] not in missing]
    if request.get("user"):
        return found[:2] + [_of_a_user(spec, device) for spec in request["user"]], []
    rows = request.get("rows")
    # importing the samples takes seconds
    if rows is None or any(name.startswith("opinfo/") for name, *_ in rows):
        listed, said = samples.cases(torch, device)
        found, notes = found + listed, notes + said
    return found, notes


def _unusable(package: str) -> tuple[str, str] | None:
    """Return (package, why it cannot be used), None if it can."""
    try:
        importlib.import_module(package)
    except Exception as error:  # not installed, or built for another torch
        absent = isinstance(error, ImportError) and error.name == package
        why = "is not installed" if absent else "cannot be used: %s" % error
        return package, " ".join(why.split())[:200]
    return None


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
        more = tuple(word[1:] for word in dtypes if word.startswith("+"))
        name = name if "/" in name else "kernel/" + name
        if device not in words and {"cpu", "cuda"} & set(words):
            continue
        case = Case(
            name,
            _built(inputs, expression, compiled=name.startswith("compile/")),
            dtypes=(*FLOATS, *more) if more else dtypes or FLOATS,
            backward="forward" not in words,
            entry=entry,
            risky="risky" in words,
        )
        case.sizes = 1 if name.startswith(("compile/", "control/")) else 2
        yield case


def _built(inputs: str, expression: str, compiled: bool) -> Build:
    def build(make: Making) -> tuple[Callable[..., Any], list[Any]]:
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
        return function, flat

    return build


def _names(make: Making) -> dict[str, Any]:
    """Return what a line of the table can use."""
    torch, cpu = make.torch, make.device == "cpu"
    nn = torch.nn

    def image(dimensions: int) -> Any:
        """About 2^17 elements, or four times as many."""
        shapes = {1: (16, 4096), 2: (16, 64, 64), 3: (8, 16, 32, 16)}
        return make.normal(make.n(2), *shapes[dimensions])

    def sparse(shape: tuple[int, ...], count: int) -> Any:
        places = torch.stack([make.index(side, count) for side in shape])
        return torch.sparse_coo_tensor(places, make.normal(count), shape).coalesce()

    def attend(kernel: str, *tensors: Any, **kwargs: Any) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, kernel)):
            return nn.functional.scaled_dot_product_attention(*tensors, **kwargs)

    def in_streams(x: Any, y: Any) -> Any:
        """Four products, each in a CUDA stream of its own, where it may get its own workspace."""
        if cpu:
            return [torch.mm(x, y) for _ in range(4)]
        streams, found = [torch.cuda.Stream() for _ in range(4)], []
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found.append(torch.mm(x, y))
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
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
        threads = [threading.Thread(target=add, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return total

    own: list[Callable[..., Any]] = [image, sparse, attend, in_streams, steps, clipped, race]
    makers = ("n", "normal", "uniform", "index", "order", "of", "device", "dtype")
    return {
        **{function.__name__: function for function in own},
        **{name: getattr(make, name) for name in makers},
        **{name: sys.modules.get(name) for name in _OPTIONAL},
        "torch": torch,
        "nn": nn,
        "F": nn.functional,
        "cuda": not cpu,
        "cpu_float16": cpu and make.dtype == torch.float16,
        "cpu_half": cpu and make.dtype in (torch.float16, torch.bfloat16),
        "weight_shapes": _SHAPES,
    }


def _of_a_user(spec: str, device: str) -> Case:
    """Return the case of `module:function`. The function takes nothing, or (torch, device, dtype),
    and returns what is measured: a function that returns tensors. If that has an attribute
    `inputs`, a list of tensors, it is called with them and its backward is measured as well.

    It is called right after `torch.manual_seed`, so what torch draws is the same in every process.
    """
    try:
        maker, arguments = _load(spec)
    except Exception:  # told by the row
        maker, arguments = None, False

    def build(make: Making) -> tuple[Callable[..., Any], list[Any]]:
        found = maker or _load(spec)[0]
        make.torch.manual_seed(make.generator.initial_seed())
        function = found(make.torch, device, make.dtype) if arguments else found()
        if not callable(function):
            kind = type(function).__name__
            raise TypeError("%s must return a function of no arguments, not %s" % (spec, kind))
        return function, list(getattr(function, "inputs", []))

    dtypes = FLOATS if arguments else FLOATS[:1]
    return Case("user/" + spec, build, dtypes=dtypes, backward=arguments, sizes=1)


def _load(spec: str) -> tuple[Callable[..., Any], bool]:
    """Return the function, and whether it takes arguments."""
    module, _, name = spec.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found, len(inspect.signature(found).parameters) >= 3
