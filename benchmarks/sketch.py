"""How well the distance of two runs is known from sketches of their tensors: the promise, within a
quarter in 19 of 20 cases, put to the test for several numbers of sums.

Each case is a pair of float32 vectors. The sums of one are stored as a baseline stores them, as
32-bit whole numbers in eighths of a rounding (half a unit in the last place of the largest element,
times the root of the length); those of the other are taken as they are. The distances are from
about one rounding to a thousand.
"""

from __future__ import annotations

import base64
import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

from benchmarks.figure import Figure
from repro_gate.probe import distance

GOAL = 0.95  # of the pairs
NEAR = 0.25
TENSORS = 200  # of a recorded run
PARTS = 8  # of a rounding


@dataclass(frozen=True)
class Settings:
    """Pairs of each kind, and numbers of sums."""

    pairs: int = 10_000
    sums: tuple[int, ...] = (8, 16, 24, 32, 48)


QUICK = Settings(pairs=20, sums=(8, distance.SUMS))


def measure(settings: Settings) -> list[Figure]:
    """For each number of sums and each kind of difference: the share of pairs whose distance is
    known within a quarter; beside it the median error, and the bytes of a recorded run. Only the
    number that the probe takes has a goal."""
    errors = {
        (count, name): list[float]() for count in settings.sums for name in DIFFERENCES
    }
    sizes = dict.fromkeys(settings.sums, 0)
    for name in DIFFERENCES:
        generator = random.Random(name)
        for _ in range(settings.pairs):
            first, second = _pair(generator, name)
            true = float((second.double() - first.double()).norm())
            unit = _rounding(first)
            # the sums of a shorter sketch are the first of a longer one
            with patch.object(distance, "SUMS", max(settings.sums)):
                one, other = map(distance.sketch, (first, second))
            assert one and other
            for count in settings.sums:
                stored = _stored(one[:count], unit)
                sizes[count] = TENSORS * len(stored)
                gaps = map(sub, _read(stored, unit), other)
                found = math.sqrt(fmean(gap * gap for gap in gaps))
                errors[count, name].append(abs(found / true - 1))
    figures = []
    for (count, name), off in errors.items():
        share = sum(error <= NEAR for error in off) / len(off)
        beside = {"median_error": median(off), "bytes": sizes[count]}
        goal = GOAL if count == distance.SUMS else None
        label = f"distances within a quarter, {count} sums, {name}"
        figures.append(Figure(label, "share", (share,), goal, beside, at_least=True))
    return figures


def _rounding(vector: Any) -> float:
    """Return the size of one rounding of a float32 vector."""
    _, exponent = math.frexp(float(vector.abs().max()))
    return math.ldexp(0.5, exponent - 24) * math.sqrt(len(vector))


def _stored(sums: Sequence[float], unit: float) -> str:
    parts = [round(PARTS * number / unit) for number in sums]
    return base64.b64encode(struct.pack(f"<{len(parts)}i", *parts)).decode()


def _read(text: str, unit: float) -> list[float]:
    content = base64.b64decode(text)
    parts = struct.unpack(f"<{len(content) // 4}i", content)
    return [number * unit / PARTS for number in parts]


def _pair(generator: random.Random, name: str) -> tuple[Any, Any]:
    """Return a vector as weights are, and what another run has in its place."""
    import torch

    source = torch.Generator().manual_seed(generator.getrandbits(40))
    rows, columns = generator.randint(20, 200), generator.randint(20, 200)
    first = 0.02 * torch.randn(rows * columns, generator=source)
    gap = DIFFERENCES[name](torch, source, first, columns)
    if name != ROUNDING:
        far = _rounding(first) * 10 ** generator.uniform(0, 3)
        gap *= far / gap.norm()
    return first, (first.double() + gap).float()


def _normal(torch: Any, source: Any, first: Any, _: int) -> Any:
    return torch.randn(len(first), generator=source, dtype=torch.float64)


def _spike(torch: Any, source: Any, first: Any, _: int) -> Any:
    gap = torch.zeros(len(first), dtype=torch.float64)
    gap[int(torch.randint(len(first), (), generator=source))] = 1
    return gap


def _heavy(torch: Any, source: Any, first: Any, _: int) -> Any:
    return torch.empty(len(first), dtype=torch.float64).cauchy_(generator=source)


def _column(torch: Any, source: Any, first: Any, columns: int) -> Any:
    gap = torch.zeros(len(first), dtype=torch.float64)
    gap[int(torch.randint(columns, (), generator=source)) :: columns] = 1
    return gap


def _last_bits(torch: Any, source: Any, first: Any, _: int) -> Any:
    towards = first + torch.randint(-1, 2, first.shape, generator=source)
    return torch.nextafter(first, towards).double() - first.double()


ROUNDING = "the last bits"
DIFFERENCES: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "dense and normal": _normal,
    "one element": _spike,
    "heavy tails": _heavy,
    "one column, all alike": _column,
    ROUNDING: _last_bits,
}
