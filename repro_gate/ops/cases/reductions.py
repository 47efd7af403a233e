"""Reductions over many elements, sorting and counting: partial results of blocks or threads are put
together at the end."""

from __future__ import annotations

from typing import Any, List

from ..case import FLOATS, Built, Case, Making

_N = 1 << 17
_BIG = 1 << 19


def _of(function: str, *args: Any, size: int = _BIG, **kwargs: Any) -> Any:
    """A function of torch on one long tensor."""

    def build(make: Making) -> Built:
        called = make.torch
        for part in function.split("."):
            called = getattr(called, part)
        return lambda x: called(x, *args, **kwargs), [make.normal(make.n(size))]

    return build


def _columns(function: str, dimension: int) -> Any:
    def build(make: Making) -> Built:
        called = getattr(make.torch, function)
        shape = (make.n(1 << 13), 64) if dimension == 0 else (64, make.n(1 << 13))
        return lambda x: called(x, dimension), [make.normal(*shape)]

    return build


def _few_values(function: str, *args: Any, **kwargs: Any) -> Any:
    """On numbers of which many are equal: which of them comes first shows in the indices."""

    def build(make: Making) -> Built:
        called = getattr(make.torch, function)
        return lambda x: called(x, *args, **kwargs), [make.index(1000, make.n(_N)).to(make.dtype)]

    return build


def _bincount(weighted: bool) -> Any:
    def build(make: Making) -> Built:
        torch, n = make.torch, make.n(_N)
        if not weighted:
            return torch.bincount, [make.index(64, n)]
        return torch.bincount, [make.index(64, n), make.normal(n)]

    return build


def _histogramdd(make: Making) -> Built:
    return lambda x: make.torch.histogramdd(x, [8, 8]).hist, [make.normal(make.n(1 << 16), 2)]


def _weighted_histogram(make: Making) -> Built:
    torch = make.torch
    return lambda x, weight: torch.histogram(x, 32, range=(-3.0, 3.0), weight=weight).hist, [
        make.normal(make.n(_N)),
        make.normal(make.n(_N)),
    ]


def cases() -> List[Case]:
    """To one number, over rows, over columns; sorts with and without a promise of stability."""
    return [*_reduced(), *_ordered(), *_counted()]


def _reduced() -> List[Case]:
    found = [
        Case("sum", _of("sum"), dtypes=(*FLOATS, "complex64", "int64")),
        Case("mean", _of("mean")),
        Case("prod", _of("prod")),
        Case("var", _of("var")),
        Case("norm", _of("linalg.vector_norm")),
        Case("norm (p=1)", _of("linalg.vector_norm", 1)),
        Case("norm (p=3)", _of("linalg.vector_norm", 3)),
        Case("logsumexp", _of("logsumexp", 0)),
        Case("softmax", _of("softmax", 0, size=_N)),
        Case("amax", _of("amax")),
        Case("argmax", _few_values("argmax"), backward=False, dtypes=(*FLOATS, "int64")),
        Case("max (with indices)", _few_values("max", 0), dtypes=(*FLOATS, "int64")),
        Case("nansum", _of("nansum")),
        Case("count_nonzero", _of("count_nonzero"), backward=False),
    ]
    for name in ("sum", "mean", "var", "prod"):
        found += [
            Case("%s (columns)" % name, _columns(name, 0)),
            Case("%s (rows)" % name, _columns(name, 1)),
        ]
    return found


def _ordered() -> List[Case]:
    return [
        Case("sort", _few_values("sort"), dtypes=(*FLOATS, "int64")),
        Case("sort (stable)", _few_values("sort", stable=True), dtypes=(*FLOATS, "int64")),
        Case("argsort", _few_values("argsort"), dtypes=(*FLOATS, "int64"), backward=False),
        Case("topk", _few_values("topk", 100), dtypes=(*FLOATS, "int64")),
        Case("kthvalue", _few_values("kthvalue", 1000), entry=r"kthvalue"),
        Case(
            "median (with indices)",
            _few_values("median", 0),
            entry=r"median",
            dtypes=(*FLOATS, "int64"),
        ),
        Case("median (value)", _few_values("median")),
        Case("nanmedian (with indices)", _few_values("nanmedian", 0), entry=r"median"),
        Case("mode", _few_values("mode")),
        Case("quantile", _of("quantile", 0.3, size=_N)),
        Case(
            "unique",
            _few_values("unique", return_inverse=True, return_counts=True),
            dtypes=(*FLOATS, "int64"),
            backward=False,
        ),
        Case(
            "unique_consecutive",
            _few_values("unique_consecutive", return_counts=True),
            backward=False,
        ),
        Case("searchsorted", _searched, backward=False),
    ]


def _counted() -> List[Case]:
    """Counts, draws, and memory that nothing has written."""
    return [
        Case("histc", _of("histc", 64, -3.0, 3.0, size=_N), entry=r"histc", backward=False),
        Case("histogram (weighted)", _weighted_histogram, backward=False),
        Case("histogramdd", _histogramdd, backward=False),
        Case("bincount", _bincount(False), dtypes=("int64",), backward=False),
        Case("bincount (weights)", _bincount(True), entry=r"bincount", backward=False),
        Case("multinomial", _drawn, backward=False, random=True),
        Case(
            "randperm",
            lambda make: (
                lambda x: make.torch.randperm(x.numel(), device=make.device),
                [make.normal(_N)],
            ),
            backward=False,
            dtypes=("float32",),
            random=True,
        ),
        Case(
            "empty (uninitialised)",
            lambda make: (lambda x: x.new_empty(x.shape[0] - 1), [make.normal(_N)]),
            backward=False,
        ),
        Case("resize_ (grown)", _grown, backward=False, dtypes=(*FLOATS, "int64")),
    ]


def _grown(make: Making) -> Built:
    return lambda x: x[:10].clone().resize_(x.shape[0] - 1), [make.normal(_N)]


def _searched(make: Making) -> Built:
    return make.torch.searchsorted, [make.normal(make.n(_N)).sort()[0], make.normal(make.n(_N))]


def _drawn(make: Making) -> Built:
    return lambda x: make.torch.multinomial(x, make.n(1 << 12), replacement=True), [
        make.uniform(1 << 12)
    ]
