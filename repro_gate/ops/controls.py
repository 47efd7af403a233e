"""Two operators whose answer is known: one that races, and one that repeats. They are measured as
every case is; where either comes out wrong, nothing that the catalog says can be believed."""

from __future__ import annotations

import threading
from typing import Any, List

from .case import Built, Case, Making

RACES, REPEATS = "control/races", "control/repeats"
_THREADS = 8
EXPECTED = {RACES: "differs", REPEATS: "repeats"}


def controls(device: str) -> List[Case]:
    """Both, for one device."""
    return [
        Case(
            "races",
            _racing_kernel if device == "cuda" else _racing_threads,
            source="control",
            dtypes=["float32"],
            backward=False,
            sizes=1,
        ),
        Case("repeats", _repeating, source="control", dtypes=["float32"], backward=False, sizes=1),
    ]


def _racing_threads(make: Making) -> Built:
    """Threads add numbers of very different sizes to one sum, each as soon as it has its own: float
    addition shows their order."""
    torch = make.torch
    numbers = [float(3.0 ** (index * 2) + 0.1) for index in range(_THREADS)]

    def race(matrix: Any) -> Any:
        total, lock, together = (
            torch.zeros((), dtype=torch.float32),
            threading.Lock(),
            threading.Barrier(_THREADS),
        )

        def add(number: float) -> None:
            together.wait()
            own = torch.mm(matrix, matrix)[0, 0] * 0 + number
            with lock:
                # the lock keeps each number; nothing keeps their order
                total.copy_(total * 1.1 + own)

        threads = [threading.Thread(target=add, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return total

    return race, [make.normal(64, 64)]


def _racing_kernel(make: Making) -> Built:
    """Atomic additions of a million numbers to sixteen places, flags off."""
    size = 1 << 20
    return lambda x, index: x.new_zeros(16).index_add_(0, index, x), [
        make.normal(size),
        make.index(16, size),
    ]


def _repeating(make: Making) -> Built:
    """An elementwise product and a sum: each element is one thread's own."""
    size = 1 << 20
    return lambda x, y: x * y + x, [make.normal(size), make.normal(size)]
