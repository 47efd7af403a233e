"""Keeps the device busy beside the operator that is measured: threads that multiply matrices, or a
second CUDA stream."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator

# of the matrices: a product takes about a millisecond, so that the load ends soon after it is told
# to
_SIDE = 192


class Contention:
    """One thread that works while `busy`, and sleeps otherwise."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self._wanted, self._over = threading.Event(), False
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._wanted.set()
        try:
            yield
        finally:
            self._idle.clear()
            self._wanted.clear()
            self._idle.wait(5)

    def stop(self) -> None:
        self._over = True
        self._wanted.set()
        self._thread.join(5)

    def _work(self) -> None:
        torch = self._torch
        side = _SIDE * 8 if self._device == "cuda" else _SIDE
        matrix = torch.full((side, side), 1e-3, device=self._device)
        stream = torch.cuda.Stream() if self._device == "cuda" else None
        while not self._over:
            if not self._wanted.is_set():
                self._idle.set()
                self._wanted.wait()
            elif stream is None:
                torch.mm(matrix, matrix)
            else:
                with torch.cuda.stream(stream):
                    torch.mm(matrix, matrix)
                stream.synchronize()
