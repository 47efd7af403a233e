"""What a series of runs came to, as data: the runs, their comparisons, their artifacts, and what is
worth knowing besides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro_gate.compare.cost import paces
from repro_gate.compare.model import Comparison, Divergence, NoiseFloor, TimedArm
from repro_gate.compare.tolerance import alike
from repro_gate.compare.traces import compare_runs
from repro_gate.files import copy_file
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import RunResult
from repro_gate.runs.order import timed_runs
from repro_gate.runs.reading import ArtifactReader, Uncompared, differences
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import trace_files

INTERRUPTED = "the gate was interrupted"  # why a series ended early, on a signal
RUN_AGAIN = ("run/interrupted", "run the gate again")  # the reason's id and its remedy


@dataclass(frozen=True)
class Varied:
    """A varied run, and how it compares with the first of its seed; None: it ended badly. `same`:
    it may count as the seed's second run. `by_chance`: it is not the same, and nothing that was
    varied explains it."""

    run: RunResult
    comparison: Comparison | None
    same: bool
    by_chance: bool = False


@dataclass(kw_only=True)
class Results:
    """The runs of one series, in order, and what was compared. `comparisons` are by seed, each of
    the first deterministic run and of the one that `second` names; `varied` are by seed as well,
    `artifacts` by the run's name and their own."""

    spec: Spec
    folder: GateFolder
    reader: ArtifactReader
    runs: tuple[RunResult, ...] = ()
    comparisons: dict[int, Comparison] = field(default_factory=dict)
    second: dict[int, str] = field(default_factory=dict)
    varied: dict[int, Varied] = field(default_factory=dict)
    floor: NoiseFloor | None = None  # of the default runs, where both came to their end
    artifacts: dict[str, dict[str, Collected]] = field(default_factory=dict)
    # by the run's name, a sentence for each glob that matches nothing
    unmatched: dict[str, tuple[str, ...]] = field(default_factory=dict)
    uncompared: tuple[Uncompared, ...] = ()
    unrecorded: dict[str, tuple[str, str]] = field(default_factory=dict)  # id -> message, remedy
    changed_data: tuple[str, ...] = ()
    # of others, seen between the runs; None: nobody could look
    gpu_processes: tuple[str, ...] | None = None
    interrupted: str = ""  # why the series ended early, where it did
    interrupted_by: tuple[str, str] = RUN_AGAIN  # id and remedy of that reason
    stopped_early: bool = False  # --fail-fast ended it at a divergence
    said: tuple[str, ...] = ()  # what the workspaces do not hold, what a run left behind

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing, what could not be read of the artifacts included."""
        return (*self.said, *self.reader.notes)

    @property
    def comparison(self) -> Comparison | None:
        """The first seed's."""
        return self.comparisons.get(self.spec.random_state.seeds[0])

    @property
    def control(self) -> RunResult | None:
        """The reseeded run."""
        return next((run for run in self.runs if run.request.arm.name == "reseeded"), None)

    def pair(self, seed: int | None = None) -> tuple[RunResult, ...]:
        """The deterministic runs of one seed, the first where none is named, that were compared."""
        seed = self.spec.random_state.seeds[0] if seed is None else seed
        good = [run for run in self._of(seed) if run.good]
        second = self.second.get(seed, "")
        return (*good[:1], *(run for run in good[1:] if run.request.name == second))

    def compared(self, seed: int) -> int:
        """Return how many deterministic runs of a seed were compared, the first counted."""
        return max(2, sum(run.good for run in self._repeats(seed)))

    def failed(self, seed: int) -> int:
        """Return how many deterministic runs of a seed ended badly."""
        return sum(run.log_matters for run in self._repeats(seed))

    def _repeats(self, seed: int) -> list[RunResult]:
        """Return the deterministic runs of a seed, but for a varied one that is not the same
        because of what was varied."""
        fragile = self.fragile
        return [run for run in self._of(seed) if run.request.name not in fragile]

    def _of(self, seed: int) -> list[RunResult]:
        """Return the deterministic runs of a seed."""
        arm = ("deterministic", seed)
        return [run for run in self.runs if (run.request.arm.name, run.request.arm.seed) == arm]

    @property
    def artifact_notes(self) -> tuple[str, ...]:
        """Return a sentence for each glob that matches nothing, but for varied runs that are not
        robust: the check tells of them."""
        fragile = self.fragile
        return tuple(
            dict.fromkeys(
                text
                for name, texts in self.unmatched.items()
                if name not in fragile
                for text in texts
            )
        )

    @property
    def fragile(self) -> frozenset[str]:
        """Return the names of the runs that are not robust."""
        return frozenset(item.run.request.name for item in self.not_robust)

    @property
    def not_robust(self) -> tuple[Varied, ...]:
        """Return the varied runs that are not the same as the first of their seed, where the plain
        runs of that seed are, and that was not shown to be chance."""
        tolerance = self.spec.determinism.tolerance
        tried = (
            self.varied[seed]
            for seed, item in self.comparisons.items()
            if seed in self.varied and alike(item, tolerance)
        )
        return tuple(item for item in tried if not item.same and not item.by_chance)

    def timed_runs(self) -> tuple[list[Sequence[Trace]], list[Sequence[Trace]]]:
        """As `order.timed_runs`."""
        return timed_runs(self.spec, self.runs)

    def step_times(self) -> dict[TimedArm, tuple[float, ...]]:
        """The pace of each run that is timed, in milliseconds, by arm; an arm without any is left
        out."""
        arms: tuple[TimedArm, ...] = ("deterministic", "default")
        found = {
            arm: paces(runs, self.spec.train.warmup)
            for arm, runs in zip(arms, self.timed_runs(), strict=True)
        }
        return {arm: times for arm, times in found.items() if times}

    def compare_with(self, other: Results, seed: int | None = None) -> Comparison:
        """Compare the first run of this series with that of another, artifacts included; of the
        first seed where none is named."""
        mine, theirs = self.pair(seed)[0], other.pair(seed)[0]
        found = differences(
            self.artifacts.get(mine.request.name, {}),
            other.artifacts.get(theirs.request.name, {}),
            self.reader,
            other.reader,
            last_step(self.runs),
        )
        return compare_runs(mine.traces, theirs.traces, found.divergences, found.values)


def default_pair(runs: Sequence[RunResult]) -> tuple[Sequence[Trace], Sequence[Trace]] | None:
    """The traces of the first two default runs that came to their end."""
    good = [run.traces for run in runs if run.request.arm.name == "default" and run.good]
    return (good[0], good[1]) if len(good) > 1 else None


def last_step(runs: Sequence[RunResult]) -> int:
    """The step that artifacts belong to; -1 where none was made."""
    return max((run.steps for run in runs), default=0) - 1


def up_to_divergence(first: RunResult, second: RunResult, found: Divergence) -> Comparison:
    """The comparison of a second run that was ended at its divergence: what both have, and no word
    on what it did not reach."""
    # what was seen may not be read back
    reached = max((found.step, *(block.step for trace in second.traces for block in trace.blocks)))
    a, b = ([before_step(trace, reached) for trace in run.traces] for run in (first, second))
    comparison = compare_runs(a, b) if reached > found.step else None
    if comparison is None or comparison.first_divergence is None:
        return Comparison(
            identical=False, steps=reached + 1, tensors=0, differing=0, first_divergence=found
        )
    return replace(comparison, steps=reached + 1)


def before_step(trace: Trace, step: int) -> Trace:
    """The trace without the blocks from `step` on."""
    return replace(trace, blocks=[block for block in trace.blocks if block.step < step])


def keep_traces(runs: Sequence[RunResult], target: Path, *, readable: bool) -> list[str]:
    """Copy the traces of all runs to `target`, one folder for each run: regular files only,
    whatever else training put beside them; `readable` where their own mode was the training's to
    read only. What could not be kept, a sentence each."""
    failed = []
    for run in runs:
        try:
            (target / run.request.name).mkdir(parents=True, exist_ok=True)
            for path in trace_files(run.folder):
                copy_file(path, target / run.request.name / path.name)
                if readable:
                    os.chmod(target / run.request.name / path.name, 0o644)
        except (OSError, TraceError) as error:
            failed.append(f"the traces of {run.request.name} were not kept: {error}")
    return failed
