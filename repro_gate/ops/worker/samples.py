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

from . import bits
from .case import FLOATS, Case, Making, Sample

_ENOUGH = 1 << 17  # elements: four times the share of one thread in torch's elementwise kernels
_ENOUGH_SLOW = 1 << 12  # where an element takes long, or where a matrix is factorized
_SLOW = re.compile(
    r"^(linalg|pinverse|qr|ormqr|geqrf|cholesky|triangular|matrix_exp|svd|pca|lu$|lu_)"
    r"|special\.zeta|polygamma|split|unbind|chunk"
)
_LOOKED_AT = 8  # samples, of which the largest is measured
_MOST = 1 << 20  # elements of a result
_OTHERS = ("complex64", "int64", "bool")
# Numbers that no operator computes: a Python object, or one that is the time or the memory's
# address.
_LEFT_OUT = ("data_ptr", "to_sparse_semi_structured")


def cases(torch: Any, device: str) -> tuple[list[Case], list[str]]:
    """Return the cases, and a note if this torch's samples cannot be imported."""
    try:
        listed = _operators(torch)
    except Exception as error:  # NumPy is missing, or the module has moved
        why = " ".join(str(error).split())[:200]
        return [], ["PyTorch's operator samples cannot be imported: %s" % why]
    found = [_case(item, device) for item in listed if item.name not in _LEFT_OUT]
    return list({case.name: case for case in found if case.dtypes}.values()), []


def _operators(torch: Any) -> list[Any]:
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


def _names(dtypes: Any) -> set[str]:
    return {str(dtype).split(".")[-1] for dtype in dtypes}


def _case(info: Any, device: str) -> Case:
    name = info.name + (" (%s)" % info.variant_test_name if info.variant_test_name else "")
    known = _names(info.supported_dtypes(device))
    dtypes = [dtype for dtype in FLOATS if dtype in known]
    if name.startswith(("fft", "linalg")) and "complex64" in known:
        dtypes.append("complex64")
    chosen = tuple(dtypes or [dtype for dtype in _OTHERS if dtype in known][:1])
    backward = _names(info.supported_backward_dtypes(device)) if info.supports_autograd else ()
    return Case("opinfo/" + name, partial(_built, info, {}), chosen, backward, sizes=1)


def _built(info: Any, bearable: dict[int, bool], make: Making) -> Sample:
    """Return a sample's tensors as inputs, each its own; the rest is the function's."""
    from torch.utils._pytree import tree_flatten, tree_unflatten

    torch = make.torch
    _seed(torch, make.seed)
    sample = _enlarged(info, bearable, make, _largest(info, make))
    found, shape = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    at = [index for index, leaf in enumerate(found) if isinstance(leaf, torch.Tensor)]
    finish = sample.output_process_fn_grad if make.backward else _as_it_is

    def function(*tensors: Any) -> Any:
        filled = list(found)
        for index, tensor in zip(at, tensors):
            filled[index] = tensor
        first, args, kwargs = tree_unflatten(filled, shape)
        return finish(info(first, *args, **kwargs))

    constants = [place for place, index in enumerate(at) if not found[index].requires_grad]
    numbers = [leaf for leaf in found if isinstance(leaf, (bool, int, float, complex, str))]
    inputs = [found[index].detach() for index in at]
    return Sample(function, inputs, constants=constants, numbers=repr(numbers))


def _enlarged(info: Any, bearable: dict[int, bool], make: Making, sample: Any) -> Any:
    """Return the first larger form that the operator takes, the sample itself if it takes none. A
    form that is three times as large is tried first: where the result is nine times as large, what
    it would be of all elements does not fit the memory. `bearable`: dimension -> whether the
    operator takes a sample repeated along it."""
    torch, first = make.torch, _first(sample)
    wanted = _ENOUGH_SLOW if _SLOW.search(info.name) else _ENOUGH
    if not _dense(torch, first) or not 0 < first.numel() < wanted:
        return sample
    times = -(-wanted // first.numel())

    def result(tried: Any) -> int:
        """Return how many elements the result has, -1 if it raises."""
        _seed(torch, make.seed)
        try:
            with torch.no_grad():
                return _elements(torch, info(tried.input, *tried.args, **tried.kwargs))
        except Exception:
            return -1

    for dimension in (0, -1) if first.ndim > 1 else (0,):
        if dimension not in bearable:
            small, tripled = result(sample), result(_repeated(torch, sample, dimension, 3))
            bearable[dimension] = (
                small >= 0 <= tripled <= 4 * max(small, 1)
                and small * times <= _MOST
                and result(_repeated(torch, sample, dimension, times)) >= 0
            )
        if bearable[dimension]:
            return _repeated(torch, sample, dimension, times)
    return sample


def _as_it_is(result: Any = None) -> Any:
    return result


def _seed(torch: Any, number: int) -> None:
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number % (1 << 32))


def _largest(info: Any, make: Making) -> Any:
    """Return the sample with the most elements among the first."""
    torch = make.torch
    seeding = torch.manual_seed
    # the samples seed once for each; torch's own takes a millisecond
    torch.manual_seed = lambda number: _seed(torch, int(number))
    try:
        listed = info.sample_inputs(make.device, make.dtype, requires_grad=make.backward)
        samples = list(itertools.islice(listed, _LOOKED_AT))
    finally:
        torch.manual_seed = seeding
    if not samples:
        raise NotImplementedError("PyTorch has no sample of it for this device and dtype")
    return max(samples, key=lambda sample: _elements(torch, sample.input))


def _elements(torch: Any, value: Any) -> int:
    return sum(item.numel() for item in bits.tensors(torch, value))


def _first(sample: Any) -> Any:
    given = sample.input
    return given[0] if isinstance(given, (list, tuple)) and given else given


def _dense(torch: Any, value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_nested
        and value.ndim > 0
    )


def _repeated(torch: Any, sample: Any, dimension: int, times: int) -> Any:
    """Repeat the tensors of a sample that have the first one's length in one dimension."""
    shape = _first(sample).shape

    def repeat(value: Any) -> Any:
        alike = _dense(torch, value) and value.ndim == len(shape)
        if not alike or value.shape[dimension] != shape[dimension]:
            return value
        counts = [1] * value.ndim
        counts[dimension] = times
        return value.detach().repeat(counts).requires_grad_(value.requires_grad)

    return sample.transform(repeat)
