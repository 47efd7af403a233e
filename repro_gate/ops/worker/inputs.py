"""Makes a recorded call again: its operator, and synthetic arguments of the form that
`probe/forms.py` has noted. Floats are standard normal, indices have the noted range and
repetition, masks as many true elements; all from one seed."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
from functools import reduce
from typing import Any

import torch

# Of normal numbers these would raise, or compute nothing but NaN.
_PROBABILITIES = re.compile(r"bernoulli|multinomial|binary_cross_entropy|sqrt|log|pow")
_POSITIVE_DEFINITE = re.compile(r"cholesky|potrf")
_DRAWN = 1 << 20  # normal numbers that are drawn; a larger tensor repeats them
# bytes that making one element takes at its worst, those of all intermediate results
_BYTES_OF_NUMBER, _BYTES_OF_INDEX = 12, 40
_MEMORY_SHARE = 8  # inputs may take one part in so many of what is free


class NotMade(Exception):
    """An operator or its inputs cannot be made. The message says why."""


def operator(name: str) -> Any:
    """Return the operator `aten.index_put_.default`. Raises NotMade if torch does not have it here:
    what a training registers itself, only the training has."""
    space, _, rest = name.partition(".")
    with contextlib.suppress(ImportError):
        importlib.import_module(space)  # torchvision registers its operators on import
    try:
        return reduce(getattr, (space, *rest.split(".")), torch.ops)
    except AttributeError:
        raise NotMade(f"{name} is not registered outside of the training") from None


def arguments(name: str, form: str) -> tuple[Any, Any]:
    """Return positional and keyword arguments. Raises NotMade."""
    if not form.startswith("["):  # it is a digest
        raise NotMade("its arguments take more than 64 KiB to describe")
    args, kwargs = json.loads(form)
    maker = _Maker(name, available() // _MEMORY_SHARE)
    return maker.made(args), {key: maker.made(item) for key, item in kwargs.items()}


def available(system: str = "") -> int:
    """Return how many bytes of memory this process may still take: what the system has, at most the
    limit of its control group."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # page caches count as free there, but not above
    found = re.search(
        r"^MemAvailable:\s+(\d+) kB", _text(f"{system}/proc/meminfo"), re.MULTILINE
    )
    if found:
        free = int(found[1]) << 10
    own = re.search(r"^0::/(.*)$", _text(f"{system}/proc/self/cgroup"), re.MULTILINE)
    groups = {"", own[1] if own else ""}
    files = [f"{system}/sys/fs/cgroup/{group}/memory.max" for group in groups]
    files.append(f"{system}/sys/fs/cgroup/memory/memory.limit_in_bytes")
    limits = [_text(file).strip() for file in files]
    return min([free, *(int(limit) for limit in limits if limit.isdecimal())])


def _text(file: str) -> str:
    with contextlib.suppress(OSError), open(file) as opened:
        return opened.read()
    return ""


class _Maker:
    """Makes the arguments of one call, in order, from one generator. `limit`: bytes that all may
    take; `left`: that may still be made."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = self.left = limit
        self.generator = torch.Generator().manual_seed(1)

    def made(self, value: Any) -> Any:
        """Return a value of the form."""
        if isinstance(value, list):
            return [self.made(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return self._tensor(value)
        ((kind, text),) = value.items()
        if kind == "complex":
            return complex(*text)
        if kind == "device":
            return torch.device(text)
        if kind == "unknown":
            raise NotMade(f"an argument is a {text}")
        return getattr(torch, text)

    def _tensor(self, form: dict[str, Any]) -> Any:
        size, stride = form["size"], form["stride"]
        dtype = getattr(torch, form["tensor"])
        count = 1 + sum((n - 1) * step for n, step in zip(size, stride))
        count = count if math.prod(size) else 0
        is_number = dtype.is_floating_point or dtype.is_complex
        one = torch.empty(0, dtype=dtype).element_size()
        made = max(_BYTES_OF_NUMBER, 2 * one) if is_number else _BYTES_OF_INDEX
        self.left -= count * made
        # what is expanded lies in little memory, but what comes out of it does not
        if self.left < 0 or math.prod(size) * one > self.limit:
            raise NotMade("its inputs take too much memory")
        if is_number:
            values = self._numbers(count, dtype, size)
        else:
            values = self._indices(count, dtype, form.get("elements", [0, 0, 1]))
        return values.to(form["device"]).as_strided(size, stride)

    def _numbers(self, count: int, dtype: Any, size: list[int]) -> Any:
        wide = (
            dtype
            if dtype in (torch.float64, torch.complex64, torch.complex128)
            else None
        )
        drawn = torch.randn(min(count, _DRAWN), dtype=wide, generator=self.generator)
        if _PROBABILITIES.search(self.name):
            drawn = drawn.abs() / (1 + drawn.abs())
        values = drawn.repeat(-(-count // _DRAWN))[:count]
        if (
            _POSITIVE_DEFINITE.search(self.name)
            and len(size) > 1
            and size[-1] == size[-2]
        ):
            square = values[: math.prod(size)].view(size)
            values = (
                square @ square.mT + torch.eye(size[-1], dtype=values.dtype) * size[-1]
            ).flatten()
        return values.to(dtype)

    def _indices(self, count: int, dtype: Any, elements: list[int]) -> Any:
        least, most, distinct = elements
        order = torch.randperm(count, generator=self.generator)
        if dtype is torch.bool:
            return order < distinct
        if distinct < 2:
            return torch.full((count,), most, dtype=dtype)
        # all values are about equally frequent; below zero there is but one, `ignore_index`
        first = min(max(least, 0), most)
        marks = int(least < first)
        steps = (order % distinct - marks).double() / max(distinct - 1 - marks, 1)
        values = first + (steps * (most - first)).round()
        return values.masked_fill(steps < 0, least).to(dtype)
