"""Progress during a run: calls a watch (the displays are in `report/progress.py`), and finds out
whether the second run of a pair has diverged from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repro_gate.compare.distances import key_of, losses_of
from repro_gate.compare.model import Divergence
from repro_gate.compare.traces import WITHIN_A_STEP, first_difference, with_own_key
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace

if TYPE_CHECKING:
    from repro_gate.runs.launch import RunResult


class Watch:
    """Receives the progress of the gate. This base class ignores it."""

    def verifying(self, done: int, total: int) -> None:
        """Report how much declared data has been hashed: bytes so far and in total."""

    def said(self, text: str) -> None:
        """Report a line before something long begins. The text must be safe to print."""

    def run_started(
        self, name: str, number: int, total: int, steps: int | None
    ) -> None:
        """Report that run `number` of `total` begins, with `steps` optimizer steps (None: to its
        end)."""

    def advanced(self, step: int, loss: float | None) -> None:
        """Report that the run has finished `step`."""

    def compared(self, divergence: Divergence | None) -> None:
        """Report where the run has diverged so far from the first of its pair, which it must
        repeat; None if it has not. Called now and then, once something was compared."""

    def diverged(self, divergence: Divergence) -> None:
        """Report that the second deterministic run has just diverged from the first."""

    def run_ended(self, run: RunResult) -> None:
        """Report that the run has ended."""


@dataclass(kw_only=True)
class Progress:
    """Reports to the watch how far the current run is, and how it compares with the first of its
    pair, `first`, if there is one. A divergence is announced and may end the run. If the run is
    `varied` it is not announced, since a plain repeat decides."""

    watch: Watch
    first: Sequence[Trace]
    fail_fast: bool
    varied: bool
    divergence: Divergence | None = None
    is_compared: bool = False  # whether there was anything to compare
    compared: dict[Path, int] = field(default_factory=dict)  # blocks, of each trace
    steps: int = 0

    def __post_init__(self) -> None:
        self.blocks = {
            key: {key_of(block): block for block in trace.blocks}
            for key, trace in with_own_key(self.first).items()
        }

    def tick(self, traces: Sequence[Trace]) -> str | None:
        """Read the traces so far. Called a few times a second; returning a text ends the run."""
        # Processes that share a key are compared only after the run has ended.
        for key, trace in with_own_key(traces).items():
            if key in self.blocks:
                self._compare(key, trace)
        if self.is_compared:
            self.watch.compared(self.divergence)
        main = next((trace for trace in traces if trace.steps), None)
        if main is not None and len(main.steps) > self.steps:
            self.steps = len(main.steps)
            losses = losses_of(replace(main, blocks=main.blocks[-200:]))
            self.watch.advanced(self.steps - 1, losses.get(max(losses, default=0)))
        if self.divergence and self.fail_fast and not self.varied:
            return "stopped: diverged from the first run"
        return None

    def _compare(self, key: str, trace: Trace) -> None:
        """Compare what is new in the trace of one process."""
        start = self.compared.get(trace.path, 0)
        end = len(trace.blocks)
        while end > start and _may_be_the_end(trace, trace.blocks[end - 1]):
            end -= 1
        self.compared[trace.path] = end
        for block in trace.blocks[start:end]:
            # A generator that differs is no divergence until a number depends on it.
            if self.divergence is not None or block.kind == "rng":
                continue
            self.is_compared = True
            self.divergence = first_difference(key, self.blocks[key], block)
            if self.divergence is not None and not self.varied:
                self.watch.diverged(self.divergence)


def _may_be_the_end(trace: Trace, block: Block) -> bool:
    """Return whether a block belongs to no finished step, so that it may be the final state of the
    run. The step of the other run's final state is unknown until both have ended."""
    return block.step >= len(trace.steps) and block.kind not in WITHIN_A_STEP
