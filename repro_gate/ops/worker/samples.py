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
import zlib
from functools import partial
from typing import Any, Iterator

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
    found = [_OperatorCase(item, device) for item in listed if item.name not in _LEFT_OUT]
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


class _OperatorCase(Case):
    """One OpInfo."""

    def __init__(self, info: Any, device: str) -> None:
        name = info.name + (" (%s)" % info.variant_test_name if info.variant_test_name else "")
        known = _names(info.supported_dtypes(device))
        others = [dtype for dtype in _OTHERS if dtype in known]
        dtypes = [dtype for dtype in FLOATS if dtype in known]
        if name.startswith(("fft", "linalg")) and "complex64" in known:
            dtypes.append("complex64")
        chosen = tuple(dtypes or others[:1])
        backward = bool(info.supports_autograd)
        super().__init__("opinfo/" + name, _no_build, dtypes=chosen, backward=backward, sizes=1)
        self._info = info
        # dimension -> whether the operator takes a sample repeated along it
        self._bearable: dict[int, bool] = {}
        self._backward = _names(info.supported_backward_dtypes(device))

    def directions(self, dtype: str) -> list[str]:
        found = super().directions(dtype)
        return found if dtype in self._backward else found[:1]

    def make(self, torch: Any, device: str, dtype: str, direction: str, size: int) -> Sample:
        number, backward = zlib.crc32(self.name.encode()), direction == "backward"
        _seed(torch, number)
        wanted = _ENOUGH_SLOW if _SLOW.search(self._info.name) else _ENOUGH
        sample = _largest(torch, self._info, device, getattr(torch, dtype), backward)
        return self._plain(torch, self._enlarged(torch, sample, wanted, number), backward)

    def _enlarged(self, torch: Any, sample: Any, wanted: int, number: int) -> Any:
        """Return the first larger form that the operator takes, the sample itself if it takes none.
        A form that is three times as large is tried first: where the result is nine times as large,
        what it would be of all elements does not fit the memory."""
        for dimension, times in _ways(torch, sample, wanted):
            larger = partial(_repeated, torch, sample, dimension, times)
            if dimension not in self._bearable:
                small = self._result(torch, sample, number)
                tripled = self._result(torch, _repeated(torch, sample, dimension, 3), number)
                self._bearable[dimension] = (
                    None not in (small, tripled)
                    and tripled <= 4 * max(small, 1)
                    and small * times <= _MOST
                    and self._result(torch, larger(), number) is not None
                )
            if self._bearable[dimension]:
                return larger()
        return sample

    def _result(self, torch: Any, sample: Any, number: int) -> Any:
        """Return how many elements the result has, None if it raises."""
        _seed(torch, number)
        try:
            with torch.no_grad():
                return _elements(torch, self._info(sample.input, *sample.args, **sample.kwargs))
        except Exception:
            return None

    def _plain(self, torch: Any, sample: Any, backward: bool) -> Sample:
        """Return the sample's tensors as inputs, each its own; the rest is the function's."""
        from torch.utils._pytree import tree_flatten, tree_unflatten

        found, shape = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        at = [index for index, leaf in enumerate(found) if isinstance(leaf, torch.Tensor)]
        finish = sample.output_process_fn_grad if backward else _as_it_is

        def function(*tensors: Any) -> Any:
            filled = list(found)
            for index, tensor in zip(at, tensors):
                filled[index] = tensor
            first, args, kwargs = tree_unflatten(filled, shape)
            return finish(self._info(first, *args, **kwargs))

        constants = [place for place, index in enumerate(at) if not found[index].requires_grad]
        numbers = [leaf for leaf in found if isinstance(leaf, (bool, int, float, complex, str))]
        return Sample(
            function,
            [found[index].detach() for index in at],
            constants=frozenset(constants),
            numbers=repr(numbers),
        )


def _as_it_is(result: Any = None) -> Any:
    return result


def _no_build(make: Making) -> Any:
    raise NotImplementedError("a sample is made by its OpInfo")


def _seed(torch: Any, number: int) -> None:
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number % (1 << 32))


def _largest(torch: Any, info: Any, device: str, dtype: Any, gradients: bool) -> Any:
    """Return the sample with the most elements among the first."""
    seeding = torch.manual_seed
    # the samples seed once for each; torch's own takes a millisecond
    torch.manual_seed = lambda number: _seed(torch, int(number))
    try:
        listed = info.sample_inputs(device, dtype, requires_grad=gradients)
        samples = list(itertools.islice(listed, _LOOKED_AT))
    finally:
        torch.manual_seed = seeding
    if not samples:
        raise NotImplementedError("PyTorch has no sample of it for this device and dtype")
    return max(samples, key=lambda sample: _elements(torch, sample.input))


def _elements(torch: Any, value: Any) -> int:
    return sum(item.numel() for item in bits.tensors(torch, value))


def _ways(torch: Any, sample: Any, wanted: int) -> Iterator[tuple[int, int]]:
    """Yield (dimension, times) to repeat a sample, the likeliest first: along the first dimension,
    along the last."""
    first = _first(sample)
    if _dense(torch, first) and 0 < first.numel() < wanted:
        for dimension in (0, -1) if first.ndim > 1 else (0,):
            yield dimension, -(-wanted // first.numel())


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
