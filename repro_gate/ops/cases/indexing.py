"""The scatter, gather and index family, with many equal indices: where several sources meet, their
order is the threads' own."""

from __future__ import annotations

from typing import Any, List

from ..case import Built, Case, Making

_N = 1 << 18
_PLACES = 1 << 10
_WITH_INT = ("float32", "float64", "bfloat16", "float16", "complex64", "int64")


def _rows(make: Making) -> Any:
    return make.index(_PLACES, make.n(_N))


def _into(make: Making, function: Any) -> Built:
    """`function(target, index, source)`: many sources, few places."""
    return function, [make.normal(_PLACES), _rows(make), make.normal(make.n(_N))]


def _wide(make: Making, function: Any) -> Built:
    """The same with rows of 64 columns."""
    n = make.n(_N // 64)
    return function, [make.normal(256, 64), make.index(256, n), make.normal(n, 64)]


def _reduce(kind: str) -> Any:
    return lambda make: _into(make, lambda x, index, y: x.scatter_reduce(0, index, y, kind))


def _index_reduce(kind: str) -> Any:
    return lambda make: _wide(make, lambda x, index, y: x.index_reduce(0, index, y, kind))


def _unique_places(make: Making, function: Any) -> Built:
    n = make.n(_N)
    return function, [make.normal(n), make.order(n), make.normal(n)]


def _from(make: Making, function: Any) -> Built:
    return function, [make.normal(_PLACES), _rows(make)]


def cases() -> List[Case]:
    """Each with equal indices but where its name says otherwise."""
    return [*_puts(), *_scatters(), *_reductions(), *_indexed(), *_shaped()]


def _puts() -> List[Case]:
    """`x[index] = y`, `x[index] += y`, and what reads by an index."""
    return [
        Case(
            "index_put_ (accumulate)",
            lambda make: _into(make, lambda x, index, y: x.index_put((index,), y, accumulate=True)),
            entry=r"index_put\b.*accumulate=True",
            dtypes=_WITH_INT,
        ),
        Case(
            "index_put_ (accumulate, rows)",
            lambda make: _wide(make, lambda x, index, y: x.index_put((index,), y, accumulate=True)),
            entry=r"index_put\b.*accumulate=True",
        ),
        Case(
            "index_put_ (no accumulate)",
            lambda make: _into(make, lambda x, index, y: x.index_put((index,), y)),
            entry=r"index_put\b.*accumulate=False",
            dtypes=_WITH_INT,
            backward=False,
        ),
        Case(
            "index_put_ (no accumulate, unique indices)",
            lambda make: _unique_places(make, lambda x, index, y: x.index_put((index,), y)),
            entry=r"index_put\b.*accumulate=False",
        ),
        Case(
            "put_ (accumulate)",
            lambda make: _into(make, lambda x, index, y: x.put(index, y, accumulate=True)),
            entry=r"\.put_.*accumulate=True",
            dtypes=_WITH_INT,
        ),
        Case(
            "put_ (no accumulate)",
            lambda make: _into(make, lambda x, index, y: x.put(index, y)),
            entry=r"\.put_.*accumulate=False",
            backward=False,
        ),
        Case("take", lambda make: _from(make, lambda x, index: x.take(index)), risky=True),
        Case(
            "__getitem__ (list of tensors)",
            lambda make: (
                lambda x, i, j: x[i, j],
                [make.normal(64, 64), make.index(64, make.n(_N)), make.index(64, make.n(_N))],
            ),
            entry=r"__getitem__",
        ),
        Case(
            "__getitem__ (one tensor)",
            lambda make: _from(make, lambda x, index: x[index]),
            entry=r"__getitem__",
        ),
        Case(
            "__getitem__ (mask)",
            lambda make: (
                lambda x, y: x[y > 0],
                [make.normal(make.n(_N)), make.normal(make.n(_N))],
            ),
        ),
    ]


def _scatters() -> List[Case]:
    """Sources go to the places that an index names, along one dimension."""
    return [
        Case(
            "scatter_add_",
            lambda make: _into(make, lambda x, index, y: x.scatter_add(0, index, y)),
            entry=r"scatter_add",
            dtypes=_WITH_INT,
        ),
        Case(
            "scatter_add_ (two dimensions)",
            lambda make: (
                lambda x, index, y: x.scatter_add(1, index, y),
                [
                    make.normal(64, 64),
                    make.index(64, 64, make.n(_N // 64)),
                    make.normal(64, make.n(_N // 64)),
                ],
            ),
            entry=r"scatter_add",
        ),
        Case(
            "scatter_ (tensor)",
            lambda make: _into(make, lambda x, index, y: x.scatter(0, index, y)),
            entry=r"Tensor\.scatter when",
            backward=False,
        ),
        Case(
            "scatter_ (number)", lambda make: _from(make, lambda x, index: x.scatter(0, index, 1))
        ),
        Case(
            "scatter_ (reduce add)",
            lambda make: _into(make, lambda x, index, y: x.scatter(0, index, y, reduce="add")),
            backward=False,
        ),
        Case(
            "scatter_ (reduce multiply)",
            lambda make: _into(make, lambda x, index, y: x.scatter(0, index, y, reduce="multiply")),
            backward=False,
        ),
    ]


def _reductions() -> List[Case]:
    """Sources that meet in one place are reduced."""
    return [
        Case("scatter_reduce (sum)", _reduce("sum"), entry=r"scatter_reduce.*'?sum"),
        Case("scatter_reduce (mean)", _reduce("mean"), entry=r"scatter_reduce.*mean"),
        Case("scatter_reduce (prod)", _reduce("prod"), entry=r"scatter_reduce.*prod"),
        Case("scatter_reduce (amax)", _reduce("amax")),
        Case("scatter_reduce (amin)", _reduce("amin")),
    ]


def _indexed() -> List[Case]:
    """Along one dimension, by one index; backward, the gradients of one place are added."""
    return [
        Case(
            "gather",
            lambda make: _from(make, lambda x, index: x.gather(0, index)),
            entry=r"torch\.gather",
        ),
        Case(
            "take_along_dim",
            lambda make: (
                lambda x, index: x.take_along_dim(index, 1),
                [make.normal(64, 64), make.index(64, 64, make.n(_N // 64))],
            ),
        ),
        Case(
            "index_add_",
            lambda make: _wide(make, lambda x, index, y: x.index_add(0, index, y)),
            entry=r"index_add",
            dtypes=_WITH_INT,
        ),
        Case(
            "index_add_ (one dimension)",
            lambda make: _into(make, lambda x, index, y: x.index_add(0, index, y)),
            entry=r"index_add",
        ),
        Case(
            "index_copy_",
            lambda make: _wide(make, lambda x, index, y: x.index_copy(0, index, y)),
            entry=r"index_copy",
            backward=False,
        ),
        Case(
            "index_copy_ (unique indices)",
            lambda make: _unique_places(make, lambda x, index, y: x.index_copy(0, index, y)),
            entry=r"index_copy",
        ),
        Case("index_fill_", lambda make: _from(make, lambda x, index: x.index_fill(0, index, 2))),
        Case(
            "index_select",
            lambda make: _from(make, lambda x, index: x.index_select(0, index)),
            entry=r"index_select",
        ),
        Case(
            "index_select (rows)",
            lambda make: (
                lambda x, index: x.index_select(0, index),
                [make.normal(256, 64), make.index(256, make.n(_N // 64))],
            ),
            entry=r"index_select",
        ),
        Case("index_reduce (prod)", _index_reduce("prod")),
        Case("index_reduce (mean)", _index_reduce("mean")),
        Case("index_reduce (amax)", _index_reduce("amax")),
    ]


def _shaped() -> List[Case]:
    """Masks, and views of which several elements are one place."""
    return [
        Case(
            "repeat_interleave",
            lambda make: (
                lambda x, times: x.repeat_interleave(times),
                [make.normal(_PLACES), make.index(2 * make.n(256), _PLACES)],
            ),
            entry=r"repeat_interleave",
        ),
        Case(
            "masked_scatter_",
            lambda make: (
                lambda x, y, z: x.masked_scatter(y > 0, z),
                [make.normal(make.n(_N)) for _ in range(3)],
            ),
        ),
        Case(
            "masked_select",
            lambda make: (
                lambda x, y: x.masked_select(y > 0),
                [make.normal(make.n(_N)), make.normal(make.n(_N))],
            ),
        ),
        Case(
            "nonzero",
            lambda make: (lambda x: (x > 0).nonzero(), [make.normal(make.n(_N))]),
            backward=False,
        ),
        Case(
            "expand (sum of many gradients)",
            lambda make: (
                lambda x, y: x.expand(make.n(_N // 64), 64) * y,
                [make.normal(64), make.normal(make.n(_N // 64), 64)],
            ),
        ),
        Case(
            "as_strided (overlapping)",
            lambda make: (
                lambda x: x.as_strided((make.n(1 << 12), 64), (1, 1)),
                [make.normal(make.n(_N))],
            ),
        ),
        Case(
            "unfold (overlapping)",
            lambda make: (lambda x: x.unfold(0, 64, 16), [make.normal(make.n(_N // 4))]),
        ),
        Case(
            "resize_ (quantized)", _quantized, entry=r"resize_", dtypes=("float32",), backward=False
        ),
    ]


def _quantized(make: Making) -> Built:
    torch = make.torch

    def resize(x: Any) -> Any:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).resize_(x.shape[0] // 2)

    return resize, [make.normal(make.n(_N))]
