"""PyTorch's own samples of its operators (OpInfo), made larger where their shapes allow it.

The samples are a few elements each, which one thread or block does. Tensors of one shape are
repeated together along a dimension until they have 2^17 elements; where the operator refuses that,
the largest sample stands as it is.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import sys
import types
import unittest
import warnings
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from . import bits
from .cases import FLOATS, Case, Making, Sample

# elements: four times the share of one thread in torch's elementwise kernels
_ENOUGH = 1 << 17
_ENOUGH_SLOW = 1 << 12  # where an element takes long, or where a matrix is factorized
_SLOW = re.compile(
    r"^(linalg|pinverse|qr|ormqr|geqrf|cholesky|triangular|matrix_exp|svd|pca|lu$|lu_)"
    r"|special\.zeta|polygamma|split|unbind|chunk"
)
_FEW = 8  # samples, of which the largest is measured
_MOST = 1 << 20  # elements of a result
_OTHERS = ("complex64", "int64", "bool")
# Numbers that no operator computes: a Python object, or one that is the time or the memory's
# address.
_LEFT_OUT = ("data_ptr", "to_sparse_semi_structured")


def cases(device: str) -> list[Case]:
    """Return the cases. Raises an exception if this torch's samples cannot be imported."""
    listed = [
        _case(info, device) for info in _operators() if info.name not in _LEFT_OUT
    ]
    return list({case.name: case for case in listed if case.dtypes}.values())


def _operators() -> list[Any]:
    with contextlib.suppress(ImportError):
        __import__("expecttest")
    # torch's test classes derive from its own; the samples need none of it
    if "expecttest" not in sys.modules:
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    frozen = torch.backends.disable_global_flags
    # torch's tests forbid themselves to set flags; the measuring has to
    torch.backends.disable_global_flags = _as_it_is
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    finally:
        torch.backends.disable_global_flags = frozen
    common: Any = sys.modules["torch.testing._internal.common_utils"]
    # looks through the stack for a test, which takes longer than the samples
    common.extract_test_fn = _as_it_is
    return list(op_db)


def _as_it_is(result: Any = None) -> Any:
    return result


def _case(info: Any, device: str) -> Case:
    variant = info.variant_test_name
    known = _names(info.supported_dtypes(device))
    dtypes = [dtype for dtype in FLOATS if dtype in known]
    if info.name.startswith(("fft", "linalg")) and "complex64" in known:
        dtypes.append("complex64")
    chosen = tuple(dtypes or [dtype for dtype in _OTHERS if dtype in known][:1])
    backward = (
        _names(info.supported_backward_dtypes(device)) if info.supports_autograd else ()
    )
    name = f"opinfo/{info.name} ({variant})" if variant else f"opinfo/{info.name}"
    return Case(name, partial(_built, info, {}), chosen, backward)


def _names(dtypes: Any) -> set[str]:
    return {str(dtype).split(".")[-1] for dtype in dtypes}


def _built(info: Any, bearable: dict[int, bool], make: Making) -> Sample:
    """Return a sample's tensors as inputs, each its own; the rest is the function's."""
    sample = _enlarged(info, bearable, make, _largest(info, make))
    whole = (sample.input, tuple(sample.args), dict(sample.kwargs))
    finish = sample.output_process_fn_grad if make.backward else _as_it_is

    def function(*tensors: Any) -> Any:
        rest = iter(tensors)
        filled = tree_map_only(torch.Tensor, lambda _: next(rest), whole)
        first, args, kwargs = filled
        return finish(info(first, *args, **kwargs))

    made = bits.tensors(whole)
    kinds = (bool, int, float, complex, str)
    return Sample(
        function,
        [tensor.detach() for tensor in made],
        constants=[at for at, item in enumerate(made) if not item.requires_grad],
        numbers=[leaf for leaf in tree_leaves(whole) if isinstance(leaf, kinds)],
    )


def _largest(info: Any, make: Making) -> Any:
    """Return the sample with the most elements among the first."""
    _seed(make.seed)
    seeding = torch.manual_seed
    # the samples seed once for each; torch's own takes a millisecond
    torch.manual_seed = _seed
    try:
        listed = info.sample_inputs(
            make.device, make.dtype, requires_grad=make.backward
        )
        samples = list(itertools.islice(listed, _FEW))
    finally:
        torch.manual_seed = seeding
    if not samples:
        raise NotImplementedError(
            "PyTorch has no sample of it for this device and dtype"
        )
    return max(samples, key=lambda sample: _elements(sample.input))


def _enlarged(info: Any, bearable: dict[int, bool], make: Making, sample: Any) -> Any:
    """Return the first larger form that the operator takes, the sample itself if it takes none. A
    form that is three times as large is tried first: where the result is nine times as large, what
    it would be of all elements does not fit the memory. `bearable`: dimension -> whether the
    operator takes a sample repeated along it."""
    first = _first(sample)
    enough = _ENOUGH_SLOW if _SLOW.search(info.name) else _ENOUGH
    if not _dense(first) or not 0 < first.numel() < enough:
        return sample
    times = -(-enough // first.numel())

    def result(tried: Any) -> int:
        """Return how many elements the result has, -1 if it raises."""
        _seed(make.seed)
        try:
            with torch.no_grad():
                return _elements(info(tried.input, *tried.args, **tried.kwargs))
        except Exception:
            return -1

    for dimension in (0, -1) if first.ndim > 1 else (0,):
        if dimension not in bearable:
            small = result(sample)
            tripled = result(_repeated(sample, dimension, 3))
            bearable[dimension] = (
                small >= 0 <= tripled <= 4 * max(small, 1)
                and small * times <= _MOST
                and result(_repeated(sample, dimension, times)) >= 0
            )
        if bearable[dimension]:
            return _repeated(sample, dimension, times)
    return sample


def _repeated(sample: Any, dimension: int, times: int) -> Any:
    """Repeat the tensors of a sample that have the first one's length in one dimension."""
    shape = _first(sample).shape

    def repeat(value: Any) -> Any:
        alike = _dense(value) and value.ndim == len(shape)
        if not alike or value.shape[dimension] != shape[dimension]:
            return value
        counts = [1] * value.ndim
        counts[dimension] = times
        return value.detach().repeat(counts).requires_grad_(value.requires_grad)

    return sample.transform(repeat)


def _seed(number: int) -> None:
    torch.default_generator.manual_seed(int(number))
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(int(number))
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number % (1 << 32))


def _elements(value: Any) -> int:
    return sum(item.numel() for item in bits.tensors(value))


def _first(sample: Any) -> Any:
    value = sample.input
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _dense(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_nested
        and value.ndim > 0
    )
