"""`torch.compile` of the operators that race without it: Inductor writes its own kernels, which the
deterministic flag may not reach."""

from __future__ import annotations

from typing import Any, Callable, List

from ..case import Built, Case, Making

_N, _PLACES = 1 << 20, 1 << 10


def _compiled(function: Callable[..., Any], inputs: Callable[[Making], List[Any]]) -> Any:
    def build(make: Making) -> Built:
        make.torch._dynamo.reset()  # a graph that another arm compiled is not this arm's
        return make.torch.compile(function, dynamic=False), inputs(make)

    return build


def _into(make: Making) -> List[Any]:
    return [make.normal(_PLACES), make.index(_PLACES, _N), make.normal(_N)]


def cases() -> List[Case]:
    """One size and dtype each: the compiler takes seconds for each of them."""
    written = (
        ("compile(cumsum)", lambda x: x.cumsum(0), lambda make: [make.normal(_N)]),
        ("compile(scatter_add)", lambda x, index, y: x.scatter_add(0, index, y), _into),
        (
            "compile(index_put) (accumulate)",
            lambda x, index, y: x.index_put((index,), y, accumulate=True),
            _into,
        ),
        ("compile(index_add)", lambda x, index, y: x.index_add(0, index, y), _into),
        (
            "compile(sum) (of products)",
            lambda x, y: (x * y).sum() + x.sin().mean(),
            lambda make: [make.normal(1 << 20), make.normal(1 << 20)],
        ),
    )
    return [
        Case(
            name,
            _compiled(function, inputs),
            source="compile",
            dtypes=("float32",),
            backward=False,
            sizes=1,
            slow=True,
            compiled=True,
            risky=True,
        )
        for name, function, inputs in written
    ] + [
        Case(
            "compile(x[index])",
            _compiled(
                lambda x, index: x[index] * 2,
                lambda make: [make.normal(_PLACES), make.index(_PLACES, _N)],
            ),
            source="compile",
            dtypes=("float32",),
            sizes=1,
            slow=True,
            compiled=True,
            risky=True,
        )
    ]
