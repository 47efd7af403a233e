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
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..case import FLOATS, Case, Making, Sample

_ENOUGH = 1 << 17  # elements: four times the share of one thread in torch's elementwise kernels
_ENOUGH_SLOW = 1 << 12  # where an element takes long, or where a matrix is factorized
_SLOW = re.compile(
    r"^(linalg|pinverse|qr|ormqr|geqrf|cholesky|triangular|matrix_exp|svd|pca|lu$|lu_)|special\.zeta|polygamma|split|unbind|chunk"
)
_LOOKED_AT = 8  # samples, of which the largest is measured
_MOST = 1 << 20  # elements of a result
_OTHERS = ("complex64", "int64", "bool")
# Numbers that no operator computes: a Python object, or one that is the time or the memory's
# address.
_LEFT_OUT = ("data_ptr", "to_sparse_semi_structured")


def cases(torch: Any, device: str) -> Tuple[List[Case], List[str]]:
    """(cases, notes): a note where this torch's samples cannot be imported."""
    try:
        listed = _operators(torch)
    except Exception as error:  # NumPy is missing, or the module has moved
        return [], [
            "PyTorch's operator samples cannot be imported: %s" % " ".join(str(error).split())[:200]
        ]
    found = [_OperatorCase(item, device) for item in listed if item.name not in _LEFT_OUT]
    unique = {case.name: case for case in found if case.dtypes}
    return list(unique.values()), []


def _operators(torch: Any) -> List[Any]:
    if "expecttest" not in sys.modules:
        with contextlib.suppress(ImportError):
            __import__("expecttest")
    # torch's test classes derive from its own; the samples need none of it
    if "expecttest" not in sys.modules:
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frozen = torch.backends.disable_global_flags
        torch.backends.disable_global_flags = (
            _as_it_is  # torch's tests forbid themselves to set flags; the measuring has to
        )
        try:
            from torch.testing._internal.common_methods_invocations import op_db
        finally:
            torch.backends.disable_global_flags = frozen
    common: Any = sys.modules["torch.testing._internal.common_utils"]
    common.extract_test_fn = (
        _as_it_is  # looks through the stack for a test, which takes longer than the samples
    )
    return list(op_db)


class _OperatorCase(Case):
    """One OpInfo."""

    def __init__(self, info: Any, device: str) -> None:
        name = info.name + (" (%s)" % info.variant_test_name if info.variant_test_name else "")
        known = {str(dtype).split(".")[-1] for dtype in info.supported_dtypes(device)}
        floats = [dtype for dtype in FLOATS if dtype in known]
        others = [dtype for dtype in _OTHERS if dtype in known]
        dtypes = (
            floats
            + [
                dtype
                for dtype in others
                if dtype == "complex64" and name.startswith(("fft", "linalg"))
            ]
            or others[:1]
        )
        super().__init__(
            name,
            _no_build,
            source="opinfo",
            dtypes=dtypes,
            backward=bool(info.supports_autograd),
            sizes=1,
        )
        self._info = info
        self._bearable: Dict[
            int, bool
        ] = {}  # dimension -> whether the operator takes a sample repeated along it
        self._backward = {
            str(dtype).split(".")[-1] for dtype in info.supported_backward_dtypes(device)
        }

    def directions(self, dtype: str) -> List[str]:
        return [
            item
            for item in super().directions(dtype)
            if item == "forward" or dtype in self._backward
        ]

    def make(
        self, torch: Any, device: str, dtype: str, direction: str, size: int, seed: int
    ) -> Sample:
        number = seed + zlib.crc32(self.name.encode())
        _seed(torch, number)
        wanted = _ENOUGH_SLOW if _SLOW.search(self._info.name) else _ENOUGH
        sample = _largest(torch, self._info, device, getattr(torch, dtype), direction == "backward")
        return self._plain(torch, self._enlarged(torch, sample, wanted, number), direction)

    def _enlarged(self, torch: Any, sample: Any, wanted: int, number: int) -> Any:
        """The first larger form that the operator takes; the sample itself where it takes none. A
        form that is three times as large is tried first: where the result is nine times as large,
        what it would be of all elements does not fit the memory."""
        for dimension, times in _ways(torch, sample, wanted):
            if dimension not in self._bearable:
                small = self._result(torch, sample, number)
                tripled = self._result(torch, _repeated(torch, sample, dimension, 3), number)
                fits = (
                    small is not None
                    and tripled is not None
                    and tripled <= 4 * max(small, 1)
                    and small * times <= _MOST
                )
                larger = _repeated(torch, sample, dimension, times) if fits else None
                self._bearable[dimension] = fits and self._result(torch, larger, number) is not None
            if self._bearable[dimension]:
                return _repeated(torch, sample, dimension, times)
        return sample

    def _result(self, torch: Any, sample: Any, number: int) -> Optional[int]:
        """How many elements the result has; None where there is none."""
        _seed(torch, number)
        try:
            with torch.no_grad():
                return _elements(torch, self._info(sample.input, *sample.args, **sample.kwargs))
        except Exception:
            return None

    def _plain(self, torch: Any, sample: Any, direction: str) -> Sample:
        """The sample's tensors as inputs, each its own; the rest is the function's."""
        from torch.utils._pytree import tree_flatten, tree_unflatten

        found, shape = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        at = [index for index, leaf in enumerate(found) if isinstance(leaf, torch.Tensor)]
        finish = sample.output_process_fn_grad if direction == "backward" else _as_it_is

        def function(*tensors: Any) -> Any:
            filled = list(found)
            for index, tensor in zip(at, tensors):
                filled[index] = tensor
            first, args, kwargs = tree_unflatten(filled, shape)
            return finish(self._info(first, *args, **kwargs))

        constants = [place for place, index in enumerate(at) if not found[index].requires_grad]
        made = Sample(function, [found[index].detach() for index in at], [], constants)
        made.numbers = repr(
            [leaf for leaf in found if isinstance(leaf, (bool, int, float, complex, str))]
        )
        return made


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
    """The sample with the most elements among the first."""
    seeding = torch.manual_seed
    # the samples seed once for each; torch's own takes a millisecond
    torch.manual_seed = lambda number: _seed(torch, int(number))
    try:
        samples = list(
            itertools.islice(info.sample_inputs(device, dtype, requires_grad=gradients), _LOOKED_AT)
        )
    finally:
        torch.manual_seed = seeding
    if not samples:
        raise NotImplementedError("PyTorch has no sample of it for this device and dtype")
    return max(samples, key=lambda sample: _elements(torch, sample.input))


def _elements(torch: Any, value: Any) -> int:
    from torch.utils._pytree import tree_leaves

    return sum(leaf.numel() for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _ways(torch: Any, sample: Any, wanted: int) -> Iterator[Tuple[int, int]]:
    """(dimension, times) to repeat a sample, the likeliest first: along the first dimension, along
    the last."""
    first = _first(sample)
    plain = (
        isinstance(first, torch.Tensor)
        and first.layout == torch.strided
        and not first.is_nested
        and first.ndim > 0
    )
    if plain and 0 < first.numel() < wanted:
        for dimension in (0, -1) if first.ndim > 1 else (0,):
            yield dimension, -(-wanted // first.numel())


def _first(sample: Any) -> Any:
    return (
        sample.input[0]
        if isinstance(sample.input, (list, tuple)) and sample.input
        else sample.input
    )


def _repeated(torch: Any, sample: Any, dimension: int, times: int) -> Any:
    return sample.transform(_repeating(torch, _first(sample).shape, dimension, times))


def _repeating(torch: Any, shape: Any, dimension: int, times: int) -> Callable[[Any], Any]:
    """Repeats tensors that have the length of `shape` in one dimension, or its shape but for
    lengths of one."""

    def repeat(value: Any) -> Any:
        if not _alike(torch, value, shape, dimension):
            return value
        counts = [1] * value.ndim
        counts[dimension] = times
        return value.detach().repeat(counts).requires_grad_(value.requires_grad)

    return repeat


def _alike(torch: Any, value: Any, shape: Any, dimension: int) -> bool:
    if (
        not isinstance(value, torch.Tensor)
        or value.layout != torch.strided
        or value.is_nested
        or not value.ndim
    ):
        return False
    return bool(value.ndim == len(shape) and value.shape[dimension] == shape[dimension])
