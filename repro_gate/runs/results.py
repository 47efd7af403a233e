"""What a series of runs came to: the runs, how each compares with the first of its pair, and what
is worth knowing besides."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.compare.cost import paces
from repro_gate.compare.model import Comparison, NoiseFloor, TimedArm
from repro_gate.compare.tolerance import is_same, noise_floor
from repro_gate.compare.traces import compare_runs, with_replay
from repro_gate.compare.unrecorded import differing_modules, notices
from repro_gate.errors import Inconclusive
from repro_gate.escape import listed
from repro_gate.files import copy_file
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.launch import RunResult
from repro_gate.runs.reading import ArtifactReader, Uncompared, differences
from repro_gate.runs.workspaces import GateFolder
from repro_gate.spec.errors import escaped, shortened
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import trace_files

INTERRUPTED = "the gate was interrupted"  # why a series ended early, on a signal
RUN_AGAIN = ("run/interrupted", "run the gate again")  # the reason's id and its remedy


@dataclass(frozen=True)
class Varied:
    """A varied run, and how it compares with the first of its seed."""

    run: RunResult
    comparison: Comparison | None  # None: it ended badly
    same: bool  # it may count as the seed's second run
    # it is not the same, and nothing that was varied explains it
    by_chance: bool = False


@dataclass(kw_only=True)
class Results:
    """The runs of one series, in order, and how they compare. `comparisons` are by seed, each of
    the first deterministic run and of the one that `second` names; `varied` are by seed as well."""

    spec: Spec
    folder: GateFolder
    reader: ArtifactReader
    fail_fast: bool = False
    runs: tuple[RunResult, ...] = ()
    # runs that only explain others, and those that ended badly and can be done without
    auxiliary: tuple[RunResult, ...] = ()
    comparisons: dict[int, Comparison] = field(default_factory=dict)
    second: dict[int, str] = field(default_factory=dict)
    varied: dict[int, Varied] = field(default_factory=dict)
    # of the first two default runs that came to their end
    floor: NoiseFloor | None = None
    uncompared: tuple[Uncompared, ...] = ()
    # id -> message, remedy
    unrecorded: dict[str, tuple[str, str]] = field(default_factory=dict)
    unsound: bool = False  # what is trained on is not as declared: no run counts
    changed_data: tuple[str, ...] = ()
    # of others, seen between the runs; None: nobody could look
    gpu_processes: tuple[str, ...] | None = None
    interrupted: str = ""  # why the series ended early, if it did
    interrupted_by: tuple[str, str] = RUN_AGAIN  # id and remedy of that reason
    # what the workspaces do not hold, what a run left behind
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is worth knowing, what could not be read of the artifacts included."""
        return (*self.warnings, *self.reader.notes)

    @property
    def comparison(self) -> Comparison | None:
        """Return the first seed's."""
        return self.comparisons.get(self.spec.seed)

    def same(self, comparison: Comparison | None) -> bool:
        """Return whether two runs are the same, as the spec asks for it; False if they were not
        compared."""
        tolerance = self.spec.determinism.tolerance
        return comparison is not None and is_same(comparison, tolerance)

    @property
    def all_alike(self) -> bool:
        """Return whether every pair so far is the same, as the spec asks for it."""
        return all(map(self.same, self.comparisons.values()))

    @property
    def reference(self) -> RunResult | None:
        """Return the first deterministic run, with which other ways to the same training are
        compared; None if the training is not reproducible as it stands."""
        first = self.by_name.get("deterministic-1")
        is_sound = not (self.interrupted or self.broken) and self.all_alike
        return first if first and first.good and is_sound else None

    @property
    def stopped_early(self) -> bool:
        """Return whether --fail-fast ended the series at a divergence."""
        return self.fail_fast and not self.all_alike

    @property
    def control(self) -> RunResult | None:
        """Return the reseeded run."""
        return next((run for run in self.runs if run.arm.name == "reseeded"), None)

    @property
    def broken(self) -> RunResult | None:
        """Return the run that ended badly and so ended the series: not the control, nor a varied
        run, of which its plain repeat decides."""
        bad = (run for run in self.runs if not run.good and not run.request.varied)
        return next((run for run in bad if run.arm.name != "reseeded"), None)

    @property
    def counted(self) -> frozenset[str]:
        """Return the names of the runs that count."""
        return frozenset(run.name for run in self.runs)

    @property
    def by_name(self) -> dict[str, RunResult]:
        """Return every run, a dropped one only if it was not repeated."""
        return {run.name: run for run in (*self.auxiliary, *self.runs)}

    def pair(self, seed: int | None = None) -> tuple[RunResult, ...]:
        """Return the deterministic runs of one seed that were compared, by default the first
        seed's."""
        seed = self.spec.seed if seed is None else seed
        good = [run for run in self.of_seed(seed) if run.good]
        second = self.second.get(seed, "")
        return (*good[:1], *(run for run in good[1:] if run.name == second))

    def plain_repeats(self, seed: int) -> list[RunResult]:
        """Return the deterministic runs of a seed that repeat its first one as it was."""
        requests = [(run, run.request) for run in self.of_seed(seed)]
        return [
            run for run, request in requests if request.second_of and not request.varied
        ]

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
        return [run for run in self.of_seed(seed) if run.name not in fragile]

    @property
    def deterministic(self) -> list[RunResult]:
        """Return the deterministic runs, of every seed."""
        return [run for run in self.runs if run.arm.name == "deterministic"]

    def of_seed(self, seed: int) -> list[RunResult]:
        """Return the deterministic runs of a seed."""
        return [run for run in self.deterministic if run.arm.seed == seed]

    @property
    def artifact_notes(self) -> tuple[str, ...]:
        """Return a sentence for each glob that matches nothing, but for varied runs that are not
        robust: the check tells of them."""
        texts: dict[str, None] = {}
        for run in self.runs:
            stopped = ""
            if run.outcome == "stopped":
                stopped = (
                    f" (the training was stopped after {self.spec.train.steps} steps)"
                )
            for glob in run.unmatched if run.name not in self.fragile else ():
                text = (
                    f"no file matches capture.artifacts {glob!r} after a run{stopped}"
                )
                texts[text] = None
        return tuple(texts)

    @property
    def fragile(self) -> frozenset[str]:
        """Return the names of the runs that are not robust."""
        return frozenset(item.run.name for item in self.not_robust)

    @property
    def not_robust(self) -> tuple[Varied, ...]:
        """Return the varied runs that are not the same as the first of their seed, where the plain
        runs of that seed are, and that was not shown to be chance."""
        tried = (
            self.varied[seed]
            for seed, item in self.comparisons.items()
            if seed in self.varied and self.same(item)
        )
        return tuple(item for item in tried if not item.same and not item.by_chance)

    @property
    def default_traces(self) -> list[tuple[Trace, ...]]:
        """Return the traces of the default runs that came to their end."""
        good = (run for run in self.runs if run.good)
        return [run.traces for run in good if run.arm.name == "default"]

    def timed_runs(self) -> tuple[list[Sequence[Trace]], list[Sequence[Trace]]]:
        """Return the traces of the deterministic runs of the first seed and of the default runs
        that came to their end, as many of each."""
        on = [run.traces for run in self.of_seed(self.spec.seed) if run.good]
        off = self.default_traces
        count = min(len(on), len(off), self.spec.cost.pairs)
        return [*on[:count]], [*off[:count]]

    def step_times(self) -> dict[TimedArm, tuple[float, ...]]:
        """Return the pace of each run that is timed, in milliseconds, by arm; an arm without any is
        left out."""
        on, off = (paces(runs, self.spec.train.warmup) for runs in self.timed_runs())
        by_arm: dict[TimedArm, tuple[float, ...]] = {
            "deterministic": on,
            "default": off,
        }
        return {arm: times for arm, times in by_arm.items() if times}

    def interrupt(self, error: BaseException) -> None:
        """Note what ended the series early: Ctrl-C, or an error."""
        if isinstance(error, KeyboardInterrupt):
            self.interrupted = INTERRUPTED
            return
        self.interrupted = f"the series ended early: {error}"
        # an id that the documents name
        if isinstance(error, Inconclusive) and "/" in error.reason_id:
            self.interrupted_by = error.reason_id, error.remedy
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free space, or set TMPDIR to a folder that has it, and run the gate again"
            self.interrupted_by = RUN_AGAIN[0], remedy

    def warn(self, text: str) -> None:
        """Add a note, once."""
        self.warnings = tuple(dict.fromkeys((*self.warnings, text)))

    def add(self, run: RunResult) -> None:
        """Take in a run that has ended: compare it with the first of its pair, if it has one."""
        request = run.request
        seed = run.arm.seed
        if request.auxiliary:
            self.auxiliary += (run,)
            if run.good and request.second_of:
                self.comparisons[seed] = with_replay(self.comparisons[seed], run.traces)
            return
        if request.dispensable and not run.good:
            self.auxiliary += (run,)
            if request.arm.name == "default":
                self.warn(
                    f"{request.name}, done for the cost alone, ended badly and does not count: "
                    f"{run.problem}"
                )
            return
        self.runs += (run,)
        if request.arm.name == "default":
            defaults = self.default_traces
            if self.floor is None and len(defaults) > 1:
                self.floor = noise_floor(*defaults[:2])
            return
        if not request.second_of:
            return
        first = self.by_name[request.second_of]
        comparison = None
        if first.good and run.good:
            comparison, uncompared = compare_pair(first, run, self.reader)
            self.uncompared = tuple(dict.fromkeys((*self.uncompared, *uncompared)))
        elif not request.varied:
            comparison = compare_crashed(first, run)
        before = self.comparisons.get(seed)
        same = self.same(comparison)
        if request.varied:
            self.varied[seed] = Varied(run, comparison, same)
        if comparison is None or (request.varied and not same):
            return
        # the first comparison there is counts, or the first that is worse
        rank = (comparison.identical, same)
        if before is not None and (before.identical, self.same(before)) <= rank:
            return
        self.comparisons[seed] = comparison
        self.second[seed] = request.name
        # else what is not recorded only follows
        if comparison.identical and not self.unrecorded:
            self.unrecorded = _unrecorded(first, run)


def compare_pair(
    first: RunResult, second: RunResult, reader: ArtifactReader
) -> tuple[Comparison, list[Uncompared]]:
    """Compare two runs, artifacts included; and return which of these could not be compared."""
    step = max(first.steps, second.steps) - 1
    divergences, values, uncompared = differences(
        first.artifacts, second.artifacts, reader, step
    )
    return compare_runs(first.traces, second.traces, divergences, values), uncompared


def _unrecorded(first: RunResult, second: RunResult) -> dict[str, tuple[str, str]]:
    """Return what differs though nothing recorded does: id of a notice -> (message, remedy)."""
    found = notices(first.unrecorded, second.unrecorded)
    names = differing_modules(first.traces, second.traces)
    if names:
        message = "what no optimizer moves differs between two runs whose training is the same: "
        remedy = (
            "an average, a snapshot or a counter: see what it "
            "is made from, and seed or order that"
        )
        found["unrecorded/modules"] = message + few(names), remedy
    return found


def few(names: Sequence[str]) -> str:
    """Return the first of some names that the training chose, and how many more there are."""
    return listed([shortened(escaped(name)) for name in names], 3)


def keep_traces(results: Results, target: Path) -> None:
    """Copy the traces of all runs to `target`, one folder for each run: regular files only,
    whatever else training put beside them. Warn of each that could not be kept."""
    for run in results.runs:
        try:
            folder = target / run.name
            folder.mkdir(parents=True, exist_ok=True)
            for path in trace_files(run.folder):
                copy_file(path, folder / path.name)
                if results.folder.sandbox.own_user:  # who alone could read them
                    os.chmod(folder / path.name, 0o644)
        except (OSError, TraceError) as error:
            results.warn(f"the traces of {run.name} were not kept: {error}")
