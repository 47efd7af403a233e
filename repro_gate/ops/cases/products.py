"""Matrix products, dense and sparse, and the factorizations: how the inner dimension is split
decides in which order it is summed."""

from __future__ import annotations

from typing import Any, List

from ..case import FLOATS, Built, Case, Making

_MATRIX = (*FLOATS, "complex64")


def _pair(name: str, left: Any, right: Any) -> Any:
    """A product of two matrices; the last dimension of the left one, the inner, grows with the
    size."""

    def build(make: Making) -> Built:
        inner = make.n(256)
        sizes = [tuple(inner if side == "k" else side for side in shape) for shape in (left, right)]
        return getattr(make.torch, name), [make.normal(*size) for size in sizes]

    return build


def _linear(make: Making) -> Built:
    layer = make.of(make.torch.nn.Linear, 256, 256)
    return layer, [make.normal(make.n(128), 256)]


def _streams(make: Making) -> Built:
    """Several products at once: in CUDA streams of their own, where each may get a workspace of its
    own; in turn on a CPU."""
    torch = make.torch
    streams = [torch.cuda.Stream() for _ in range(4)] if make.device == "cuda" else []

    def multiply(x: Any, y: Any) -> Any:
        if not streams:
            return [torch.mm(x, y) for _ in range(4)]
        found = []
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found.append(torch.mm(x, y))
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        return found

    return multiply, [make.normal(64, make.n(1024)), make.normal(make.n(1024), 64)]


def _sparse(make: Making) -> Any:
    """A COO matrix of 1024 x 1024 with about 1 % of its places filled, from indices that repeat."""
    n = make.n(1 << 13)
    places = make.torch.stack([make.index(1024, n), make.index(1024, n)])
    return make.torch.sparse_coo_tensor(places, make.normal(n), (1024, 1024))


def _sparse_product(layout: str) -> Any:
    def build(make: Making) -> Built:
        matrix = _sparse(make).coalesce()
        matrix = matrix.to_sparse_csr() if layout == "csr" else matrix
        return make.torch.mm, [matrix, make.normal(1024, 64)]

    return build


def _sparse_bmm(make: Making) -> Built:
    n = make.n(1 << 13)
    torch = make.torch
    places = torch.stack([make.index(4, n), make.index(256, n), make.index(256, n)])
    matrix = torch.sparse_coo_tensor(places, make.normal(n), (4, 256, 256)).coalesce()
    return torch.bmm, [matrix, make.normal(4, 256, 32)]


def _coalesce(make: Making) -> Built:
    """Sums what lies in one place."""
    torch, n = make.torch, make.n(1 << 16)
    places = torch.stack([make.index(64, n), make.index(64, n)])
    return lambda values: torch.sparse_coo_tensor(places, values, (64, 64)).coalesce().values(), [
        make.normal(n)
    ]


def _sparse_sum(make: Making) -> Built:
    return lambda x: make.torch.sparse.sum(x, 0).to_dense(), [_sparse(make).coalesce()]


def _factorization(name: str, positive: bool = False) -> Any:
    def build(make: Making) -> Built:
        called = getattr(make.torch.linalg, name)
        x = make.normal(4, make.n(32), make.n(32))
        if positive:
            x = x @ x.mT + make.torch.eye(make.n(32), dtype=x.dtype, device=x.device) * make.n(32)
        return called, [x]

    return build


def _fft(make: Making) -> Built:
    return make.torch.fft.rfft, [make.normal(16, make.n(1 << 12))]


def cases() -> List[Case]:
    """Dense, then sparse, then linear algebra."""
    return [
        Case("mm", _pair("mm", (128, "k"), ("k", 128)), dtypes=_MATRIX),
        Case("mm (long inner dimension)", _pair("mm", (16, "k"), ("k", 16))),
        Case("mm (integers)", _pair("mm", (64, "k"), ("k", 64)), dtypes=("int64",), backward=False),
        Case("bmm", _pair("bmm", (8, 64, "k"), (8, "k", 64)), dtypes=_MATRIX),
        Case("matmul (vector)", _pair("matmul", (512, "k"), ("k",))),
        Case(
            "dot",
            lambda make: (
                make.torch.dot,
                [make.normal(make.n(1 << 18)), make.normal(make.n(1 << 18))],
            ),
        ),
        Case("linear", _linear),
        Case("matmul (several streams)", _streams),
        Case(
            "einsum",
            lambda make: (
                lambda x, y: make.torch.einsum("bik,bjk->bij", x, y),
                [make.normal(8, 64, make.n(256)) for _ in "xy"],
            ),
        ),
        Case(
            "cdist",
            lambda make: (
                make.torch.cdist,
                [make.normal(make.n(128), 64), make.normal(make.n(128), 64)],
            ),
        ),
        Case("sparse mm (coo)", _sparse_product("coo")),
        Case("sparse mm (csr)", _sparse_product("csr")),
        Case("sparse bmm (coo)", _sparse_bmm, entry=r"torch\.bmm", backward=False),
        Case("sparse coalesce", _coalesce),
        Case("sparse sum", _sparse_sum),
        Case("linalg.qr", _factorization("qr")),
        Case("linalg.svd", _factorization("svd"), backward=False),
        Case("linalg.inv", _factorization("inv", positive=True)),
        Case("linalg.eigh", _factorization("eigh", positive=True)),
        Case("linalg.cholesky", _factorization("cholesky", positive=True)),
        Case("fft.rfft", _fft),
    ]
