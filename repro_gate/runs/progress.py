"""Who is told how the runs go: the interface, and the member that tells nobody. `report/progress.py` holds the displays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from repro_gate.compare.model import Divergence

if TYPE_CHECKING:
    from repro_gate.runs.launch import Run


class Watch(Protocol):
    """What the gate tells while it goes on."""

    def verifying(self, done: int, total: int) -> None:
        """Declared data is being hashed: bytes so far, and in all."""

    def said(self, text: str) -> None:
        """A line before something that takes long. The text is safe to print."""

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        """A run begins: the `number`-th of `total`, of `steps` optimizer steps (None: to its end)."""

    def advanced(self, step: int, loss: float | None) -> None:
        """The run has closed `step`."""

    def diverged(self, divergence: Divergence) -> None:
        """The second deterministic run has just diverged from the first."""

    def run_ended(self, run: Run) -> None:
        """The run has ended."""


class Silent:
    """Tells nobody."""

    def verifying(self, done: int, total: int) -> None:
        """Nothing."""

    def said(self, text: str) -> None:
        """Nothing."""

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        """Nothing."""

    def advanced(self, step: int, loss: float | None) -> None:
        """Nothing."""

    def diverged(self, divergence: Divergence) -> None:
        """Nothing."""

    def run_ended(self, run: Run) -> None:
        """Nothing."""
