"""The results of a series of runs: the runs, their comparisons with the first run of each pair, and
notes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

from repro_gate.compare.cost import Block, blocks_of, measure_cost, paces, probe_pct
from repro_gate.compare.model import (
    Comparison,
    Cost,
    GpuState,
    NoiseFloor,
    TimedArm,
)
from repro_gate.compare.tolerance import is_same, noise_floor
from repro_gate.compare.traces import compare_runs, with_replay
from repro_gate.compare.unrecorded import differing_modules, notices
from repro_gate.errors import Inconclusive
from repro_gate.escape import counted
from repro_gate.files import copy_file
from repro_gate.runs.arms import Alternation, alternation
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.launch import RunResult
from repro_gate.runs.reading import ArtifactReader, Uncompared, differences
from repro_gate.runs.workspaces import GateFolder
from repro_gate.spec.errors import few
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import trace_files

Traces = tuple[Trace, ...]
INTERRUPTED = "the gate was interrupted"  # why a series ended early, on a signal
# how the names of runs begin that only the cost needs; those of UNDIGESTED time whole runs
UNDIGESTED = "undigested-"
OF_COST = ("alternating-", UNDIGESTED)
RUN_AGAIN = ("run/interrupted", "run the gate again")  # the reason's id and its remedy
# what ends a series early, see `Results.interrupt`
EARLY_ENDS = (KeyboardInterrupt, Inconclusive, OSError)


@dataclass(frozen=True)
class Varied:
    """A varied run, and how it compares with the first of its seed."""

    run: RunResult
    comparison: Comparison | None  # None: it ended badly
    same: bool  # it may count as the seed's second run
    # it differs, but not because of what was varied
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
        """Return the notes, including those on artifacts that could not be read."""
        return (*self.warnings, *self.reader.notes)

    @property
    def comparison(self) -> Comparison | None:
        """Return the comparison of the first seed."""
        return self.comparisons.get(self.spec.seed)

    def same(self, comparison: Comparison | None) -> bool:
        """Return whether two runs are the same by the standard of the spec (bitwise, or within its
        tolerance); False if they were not compared."""
        tolerance = self.spec.determinism.tolerance
        return comparison is not None and is_same(comparison, tolerance)

    @property
    def is_recording(self) -> bool:
        """Return whether one run is done alone, so that nothing is compared."""
        return self.spec.determinism.repeat == 1

    @property
    def all_alike(self) -> bool:
        """Return whether every pair so far is the same by the standard of the spec."""
        return all(map(self.same, self.comparisons.values()))

    @property
    def reference(self) -> RunResult | None:
        """Return the first deterministic run, with which legs and equivalent ways are compared;
        None if the training itself is not reproducible."""
        first = self.by_name.get("deterministic-1")
        is_sound = not (self.interrupted or self.broken) and self.all_alike
        return first if first and first.good and is_sound else None

    @property
    def stopped_early(self) -> bool:
        """Return whether --fail-fast ended the series at a divergence."""
        return self.fail_fast and not self.all_alike

    def of_arm(self, name: str) -> list[RunResult]:
        """Return the runs of one arm, of every seed."""
        return [run for run in self.runs if run.arm.name == name]

    @property
    def control(self) -> RunResult | None:
        """Return the reseeded run."""
        return next(iter(self.of_arm("reseeded")), None)

    @property
    def broken(self) -> RunResult | None:
        """Return the run that ended badly and so ended the series. The control does not count, nor
        does a varied run, since its plain repeat decides."""
        for run in self.runs:
            is_excused = run.request.varied or run.arm.name == "reseeded"
            if not run.good and not is_excused:
                return run
        return None

    @property
    def counted(self) -> frozenset[str]:
        """Return the names of the runs that count."""
        return frozenset(run.name for run in self.runs)

    @property
    def by_name(self) -> dict[str, RunResult]:
        """Return every run by its name; of a repeated run the repeat."""
        every = (*self.auxiliary, *self.runs)
        return {run.name: run for run in every}

    def pair(self, seed: int | None = None) -> tuple[RunResult, ...]:
        """Return the deterministic runs of one seed that were compared, by default the first
        seed's."""
        seed = self.spec.seed if seed is None else seed
        second = self.second.get(seed)
        good = [run for run in self.of_seed(seed) if run.good]
        others = [run for run in good[1:] if run.name == second]
        return (*good[:1], *others)

    def is_repeated(self, seed: int) -> bool:
        """Return whether an unvaried deterministic run has repeated the first of its seed."""
        requests = [run.request for run in self.of_seed(seed)]
        return any(item.second_of and not item.varied for item in requests)

    def counts(self, seed: int) -> tuple[int, int]:
        """Return how many deterministic runs of a seed were compared, including the first, and how
        many ended badly. A run that differs because of what was varied is not counted."""
        runs = [run for run in self.of_seed(seed) if run.name not in self.fragile]
        compared = sum(run.good for run in runs)
        failed = sum(run.log_matters for run in runs)
        return max(2, compared), failed

    @property
    def deterministic(self) -> list[RunResult]:
        """Return the deterministic runs, of every seed."""
        return self.of_arm("deterministic")

    def of_seed(self, seed: int) -> list[RunResult]:
        """Return the deterministic runs of a seed."""
        return [run for run in self.deterministic if run.arm.seed == seed]

    @property
    def artifact_notes(self) -> tuple[str, ...]:
        """Return a sentence for each glob that matches nothing. Varied runs that are not robust are
        left out: the check reports them."""
        notes: dict[str, None] = {}
        for run in self.runs:
            if run.name in self.fragile:
                continue
            after = "after a run"
            if run.outcome == "stopped":
                steps = self.spec.train.steps or 0
                after += f" (the training was stopped after {counted(steps, 'step')})"
            for glob in run.unmatched:
                notes[f"no file matches capture.artifacts {glob!r} {after}"] = None
        return tuple(notes)

    @property
    def fragile(self) -> frozenset[str]:
        """Return the names of the runs that are not robust."""
        return frozenset(item.run.name for item in self.not_robust)

    @property
    def not_robust(self) -> tuple[Varied, ...]:
        """Return the varied runs that differ from the first of their seed although the plain runs
        of that seed agree, unless this was shown to be chance."""
        found = []
        for seed, item in self.varied.items():
            is_explained = item.same or item.by_chance
            if not is_explained and self.same(self.comparisons.get(seed)):
                found.append(item)
        return tuple(found)

    @property
    def default_traces(self) -> list[Traces]:
        """Return the traces of the default runs that came to their end."""
        return [run.traces for run in self.of_arm("default") if run.good]

    def timed_runs(
        self, runs: Sequence[RunResult]
    ) -> tuple[list[Traces], list[Traces]]:
        """Return the traces of those of the runs that came to their end, deterministic ones of the
        first seed and default ones, as many of each."""
        on, off = (
            [
                run.traces
                for run in runs
                if run.good and (run.arm.name, run.arm.seed) == (arm, self.spec.seed)
            ]
            for arm in get_args(TimedArm)
        )
        count = min(len(on), len(off))
        return on[:count], off[:count]

    @property
    def of_cost(self) -> list[RunResult]:
        """Return the runs that only the cost needs."""
        return [run for run in self.auxiliary if run.name.startswith(OF_COST)]

    @property
    def alternating(self) -> list[RunResult]:
        """Return the runs in which the flags alternate."""
        return [run for run in self.auxiliary if run.arm.name == "alternating"]

    @cached_property
    def alternation(self) -> Alternation | str:
        """Return how the flags alternate in these runs, or why they cannot. It follows from the
        first runs and the control, and reads every digest of one trace: asked for when all of them
        are there."""
        on, off = self.timed_runs(self.runs)
        control = self.control.traces if self.control else ()
        if not on:
            return "the runs are not compared"
        return alternation(self.spec, on[0], off[0], control)

    @property
    def blocks(self) -> list[Block] | str:
        """Return the timed blocks of the alternating runs so far, or why they tell nothing."""
        plan = self.alternation
        if isinstance(plan, str):
            return plan
        blocks: list[Block] = []
        for run in self.alternating:
            if not run.good:
                return f"{run.name} ended badly: {run.problem}"
            warmup = self.spec.train.warmup
            found = blocks_of(run.traces, plan.arms, plan.cycle, warmup)
            if isinstance(found, str):
                return found
            blocks += found
        return blocks

    def cost(self) -> Cost | None:
        """Return what determinism costs; None where it cannot be measured."""
        plan = self.alternation
        flags = () if isinstance(plan, str) else plan.flags
        warmup = self.spec.train.warmup
        compared = self.timed_runs(self.runs)
        undigested = self.timed_runs(self.of_cost)
        is_whole = len(undigested[0]) > 1
        runs = undigested if is_whole else compared
        cost = measure_cost(*runs, warmup, self.blocks, flags)
        return cost and replace(
            cost,
            probe_pct=probe_pct([*compared[0], *compared[1]], warmup),
            undigested=is_whole,
            gpus=self._gpus(),
        )

    def _gpus(self) -> tuple[GpuState, ...]:
        """Return the states of the GPUs that were trained on, before and after the runs that may be
        timed; of all GPUs where it is not known which."""
        runs = (*self.runs, *self.auxiliary)
        facts = [trace.facts for run in runs for trace in run.traces]
        used = {of.get("gpu-uuid") for of in facts if "gpu-model" in of}
        known = [state for run in runs for state in run.gpus]
        of_used = [state for state in known if state.gpu in used]
        return tuple(of_used or (known if used else ()))[:1_000]

    def step_times(self) -> dict[TimedArm, tuple[float, ...]]:
        """Return the step time of each timed run in milliseconds, by arm; arms without timed runs
        are left out."""
        times: dict[TimedArm, tuple[float, ...]] = {}
        for arm, runs in zip(
            get_args(TimedArm), self.timed_runs(self.runs), strict=True
        ):
            of_arm = paces(runs, self.spec.train.warmup)
            if of_arm:
                times[arm] = of_arm
        return times

    def interrupt(self, error: BaseException) -> None:
        """Record what ended the series early: Ctrl-C, or an error."""
        if isinstance(error, KeyboardInterrupt):
            self.interrupted = INTERRUPTED
            return
        self.interrupted = f"the series ended early: {error}"
        # Only ids with a slash are documented.
        if isinstance(error, Inconclusive) and "/" in error.reason_id:
            self.interrupted_by = error.reason_id, error.remedy
        elif isinstance(error, OSError):
            remedy = "see that TMPDIR has space and can be written to, and run the gate again"
            self.interrupted_by = RUN_AGAIN[0], remedy

    def warn(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.warnings:
            self.warnings += (text,)

    def add(self, run: RunResult) -> None:
        """Add a run that has ended, and compare it with the first of its pair, if it has one."""
        request = run.request
        if request.counts == "never" or (request.counts == "if good" and not run.good):
            self.auxiliary += (run,)
            if run.good and request.second_of:
                before = self.comparisons[run.arm.seed]
                replayed = with_replay(before, run.traces)
                self.comparisons[run.arm.seed] = replayed
            return
        self.runs += (run,)
        defaults = self.default_traces
        if self.floor is None and len(defaults) > 1:
            self.floor = noise_floor(*defaults[:2])
        if request.second_of and run.arm.name != "default":
            self._compare(self.by_name[request.second_of], run)

    def _compare(self, first: RunResult, run: RunResult) -> None:
        """Compare a deterministic run with the first of its seed."""
        seed = run.arm.seed
        varied = run.request.varied
        comparison = None
        if first.good and run.good:
            comparison, more = compare_pair(first, run, self.reader)
            uncompared = dict.fromkeys([*self.uncompared, *more])
            self.uncompared = tuple(uncompared)
        elif not varied:
            comparison = compare_crashed(first, run)
        same = self.same(comparison)
        if varied:
            self.varied[seed] = Varied(run, comparison, same)
        if comparison is None or (varied and not same):
            return
        # The first comparison that there is counts, or the first that is worse.
        before = self.comparisons.get(seed)
        rank = (comparison.identical, same)
        if before and (before.identical, self.same(before)) <= rank:
            return
        self.comparisons[seed] = comparison
        self.second[seed] = run.name
        # Otherwise what is not recorded only follows.
        if comparison.identical and not self.unrecorded:
            self.unrecorded = notices(first.unrecorded, run.unrecorded)
            if names := differing_modules(first.traces, run.traces):
                what = "tensors that no optimizer updates differ in two runs that otherwise agree"
                remedy = "these are averages, snapshots or counters: seed or order their inputs"
                self.unrecorded["unrecorded/modules"] = f"{what}: {few(names)}", remedy


def compare_pair(
    first: RunResult, second: RunResult, reader: ArtifactReader
) -> tuple[Comparison, list[Uncompared]]:
    """Compare two runs with their artifacts. Return also the artifacts that could not be
    compared."""
    step = max(first.steps, second.steps) - 1
    divergences, values, uncompared = differences(
        first.artifacts, second.artifacts, reader, step
    )
    comparison = compare_runs(first.traces, second.traces, divergences, values)
    return comparison, uncompared


def keep_traces(results: Results, target: Path) -> None:
    """Copy the traces of all runs to `target`, one folder for each run. Only regular files are
    copied, since the training may have added others. Warn of each that could not be copied."""
    for run in results.runs:
        try:
            folder = target / run.name
            folder.mkdir(parents=True, exist_ok=True)
            for path in trace_files(run.folder):
                copy_file(path, folder / path.name)
                if results.folder.sandbox.own_user:  # who alone could read them
                    os.chmod(folder / path.name, 0o644)
        except (OSError, TraceError) as error:
            results.warn(f"the traces of {run.name} were not copied: {error}")
