"""Does the runs of a series in their order (`order.py`), compares what can be compared as soon as
it can be, and gives the results."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from repro_gate.compare.model import Comparison
from repro_gate.compare.tolerance import alike, noise_floor, recorded
from repro_gate.compare.traces import compare_runs, with_replay
from repro_gate.compare.unrecorded import Left, differing_modules, notices
from repro_gate.data.declared import DataState, changed_data, read_data_state
from repro_gate.errors import Inconclusive
from repro_gate.escape import listed
from repro_gate.files import remove_tree
from repro_gate.machine import other_gpu_processes
from repro_gate.runs import arms, order, variation
from repro_gate.runs.artifacts import collect
from repro_gate.runs.changed_files import changed_files
from repro_gate.runs.crashes import compare_crashed, crashed_by_itself
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.flags import HASH_SEED
from repro_gate.runs.gate_folder import GateFolder, site_of
from repro_gate.runs.launch import RunRequest, RunResult, Site, launch
from repro_gate.runs.progress import LiveComparison, Progress, Watch
from repro_gate.runs.reading import ArtifactReader, differences
from repro_gate.runs.results import (
    INTERRUPTED,
    RUN_AGAIN,
    Results,
    Varied,
    default_pair,
    last_step,
    up_to_divergence,
)
from repro_gate.sandbox.cleanup import MOST
from repro_gate.sandbox.identity import as_training_user
from repro_gate.spec.errors import escaped, shortened
from repro_gate.spec.model import Spec


def run_series(
    spec: Spec,
    folder: GateFolder,
    watch: Watch,
    plans: Sequence[RunRequest],
    *,
    fail_fast: bool = False,
    measure: bool = True,
    started: float | None = None,
    sound: Callable[[], bool] = lambda: True,
    wrote: Callable[[Path], None] = lambda _: None,
) -> Results:
    """Do every run in order, until one ends badly. Ctrl-C ends the run in progress and the series.
    Raises Inconclusive or OSError where not even the first run could be done. `measure`: two more
    short runs may say how far apart a divergence is. `started`: by the monotonic clock, when the
    gate did; further pairs are then timed until the interval of the cost is narrow enough, for as
    long as the gate took until then at most. Where what is trained on is not `sound`, asked after
    the first run, there is no other and this one does not count. `wrote` gets the working directory
    of each run that has ended, before its artifacts are taken out."""
    series = _Series(
        spec=spec,
        folder=folder,
        reader=ArtifactReader(spec, folder),
        said=folder.snapshot.notes,
        watch=watch,
        fail_fast=fail_fast,
        sound=sound,
        wrote=wrote,
        started=started,
        data_before=read_data_state(spec.data, spec.path.parent),
    )
    series.run_all(plans, measure)
    return series


@dataclass(kw_only=True)
class _Series(Results):
    """The executor: the results, and what it needs to go on."""

    watch: Watch
    fail_fast: bool
    sound: Callable[[], bool]
    wrote: Callable[[Path], None]
    started: float | None  # by the monotonic clock
    data_before: DataState
    planned: int = 0  # how many runs there were before the first further pair
    # by the run's name, the files and the output that nothing compares
    left: dict[str, Left] = field(default_factory=dict)

    def run_all(self, plans: Sequence[RunRequest], measure: bool) -> None:
        reproducible_by = ""
        try:
            self.stopped_early = self._do(plans)
            reproducible_by = self._hash_seed()
            if measure:
                self._measure_divergences()
        except KeyboardInterrupt:
            self.interrupted = INTERRUPTED
        except (Inconclusive, OSError) as error:
            if not self.runs:
                raise  # nothing was found out yet
            self.interrupted = f"the series ended early: {error}"
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                remedy = "free space, or set TMPDIR to a folder that has it, and run the gate again"
                self.interrupted_by = RUN_AGAIN[0], remedy
            # one that the documents name
            if isinstance(error, Inconclusive) and "/" in error.reason_id:
                self.interrupted_by = error.reason_id, error.remedy
        if defaults := default_pair(self.runs):
            self.floor = replace(noise_floor(*defaults), reproducible_by=reproducible_by)

    def _do(self, plans: Sequence[RunRequest]) -> bool:
        """Do the runs and compare each pair, until one ends badly: after a crash only the second
        run of that seed's pair is done, which may not crash. Whether --fail-fast ended the
        series."""
        crashed: RunResult | None = None
        waiting = [*plans]
        while waiting := waiting or self._further_pair():
            plan = waiting.pop(0)
            if crashed is not None:
                if not order.completes_pair(plan, crashed.request):
                    continue
                plan = replace(plan, varied=frozenset())  # what varies may be why it crashes
            live = self._live(plan)
            run = self._run(plan, live, total=len(self.runs) + 1 + len(waiting))
            # a note is no reason to lose the control
            if not run.good and "dispatched" in plan.probe:
                self._drop(run)
                run = self._run(
                    replace(plan, probe={}), live, total=len(self.runs) + 1 + len(waiting)
                )
            # nor a narrower cost one to lose the verdict
            if not run.good and self.planned and plan.arm.name == "default":
                self._drop(run)
                self._say(
                    f"{plan.name}, done for the cost alone, ended badly and does not count: "
                    f"{run.problem}"
                )
                return False
            if len(self.runs) == 1 and not self.sound():
                self.runs = ()
                return False
            if plan.varied and plan.second_of:
                if not self._take_varied(run):
                    waiting = self._with_plain_repeat(plan, waiting)
                continue
            if live is not None:
                first = self._named(plan.second_of)
                if live.found is not None and (live.fail_fast or (not run.good and self._bitwise)):
                    # A run that ended because it had diverged still proves that it had.
                    self._took(run, up_to_divergence(first, run, live.found))
                    return live.fail_fast
                if not (first.good and run.good):
                    found = compare_crashed(first, run)
                    if found is not None:
                        self._took(run, found)
                    return False
                self._took(run, self._compared(run))
            elif not run.good and plan.arm.name != "reseeded":
                if not crashed_by_itself(run) or run.reason_id == NO_DETERMINISTIC:
                    return False
                crashed = run
        return False

    def _drop(self, run: RunResult) -> None:
        """Forget a run that is not needed."""
        self.runs = tuple(item for item in self.runs if item is not run)
        remove_tree(run.folder)  # the traces of a run lie in a folder of its name

    def _further_pair(self) -> list[RunRequest]:
        """Two more runs for the cost, of a training that is the same twice: what diverges has other
        troubles."""
        if self.started is None or not all(
            alike(item, self.spec.determinism.tolerance) for item in self.comparisons.values()
        ):
            return []
        self.planned = self.planned or len(self.runs)
        before = (
            monotonic() - self.started - sum(run.ended.seconds for run in self.runs[self.planned :])
        )
        plans = order.further_pair(self.spec, self.runs, self.planned, before)
        if plans:
            self.watch.said(
                "the cost of the flags is not known well enough yet: one more run with them and "
                "one without"
            )
        return plans

    def _named(self, name: str) -> RunResult:
        return next(run for run in self.runs if run.request.name == name)

    def _live(self, plan: RunRequest) -> LiveComparison | None:
        """For the second run of a deterministic pair."""
        if plan.arm.name != "deterministic" or not plan.second_of:
            return None
        # a divergence is told of the plain repeat; this run goes on to its end, since how it ends
        # counts too
        first = self._named(plan.second_of).traces
        if plan.varied:
            return LiveComparison(Watch(), first, fail_fast=False)
        return LiveComparison(self.watch, first, self.fail_fast and self._bitwise)

    @property
    def _bitwise(self) -> bool:
        return self.spec.determinism.tolerance is None

    def _compared(self, run: RunResult) -> Comparison:
        """A deterministic run compared with the first of its seed, artifacts included."""
        first = self._named(run.request.second_of)
        a, b = (self.artifacts.get(item.request.name, {}) for item in (first, run))
        found = differences(a, b, self.reader, self.reader, last_step(self.runs))
        self.uncompared = tuple(dict.fromkeys((*self.uncompared, *found.uncompared)))
        return compare_runs(first.traces, run.traces, found.divergences, found.values)

    def _take_varied(self, run: RunResult) -> bool:
        """Take in a varied run; False where it is not the same as the first, so that a plain repeat
        has to say what that is worth."""
        comparison = self._compared(run) if run.good else None
        same = comparison is not None and alike(comparison, self.spec.determinism.tolerance)
        self.varied[run.request.arm.seed] = Varied(run, comparison, same)
        if same and comparison is not None:
            self._took(run, comparison)
        return same

    def _with_plain_repeat(self, plan: RunRequest, waiting: list[RunRequest]) -> list[RunRequest]:
        """The runs to come with a plain repeat of `plan`'s first run in front: one of them, or one
        more."""
        first = self._named(plan.second_of).request
        repeat = next(
            (item for item in waiting if item.second_of == first.name),
            order.again(first, 3),
        )
        self.watch.said(
            f"{plan.name}, which is varied, is not the same as {first.name}: {repeat.name} repeats "
            "the first run as it was"
        )
        return [repeat, *(item for item in waiting if item is not repeat)]

    def _took(self, run: RunResult, comparison: Comparison) -> None:
        """Keep a comparison with the first run of the seed: the first there is, or the first that
        is worse."""
        seed, first = run.request.arm.seed, self._named(run.request.second_of)
        before, tolerance = self.comparisons.get(seed), self.spec.determinism.tolerance
        if before is not None and (before.identical, alike(before, tolerance)) <= (
            comparison.identical,
            alike(comparison, tolerance),
        ):
            return
        self.comparisons[seed], self.second[seed] = comparison, run.request.name
        # else what is not recorded only follows
        if comparison.identical and not self.unrecorded and run.good:
            self.unrecorded = notices(self.left[first.request.name], self.left[run.request.name])
            if names := differing_modules(first.traces, run.traces):
                message = (
                    "what no optimizer moves differs between two runs whose training is the same: "
                    f"{_few(names)}"
                )
                remedy = (
                    "an average, a snapshot or a counter: see what it is made from, and seed or "
                    "order that"
                )
                self.unrecorded["unrecorded/modules"] = message, remedy

    def _hash_seed(self) -> str:
        """`PYTHONHASHSEED` where that alone makes the default runs reproducible. Where only they
        diverge, and so early that the hash seed may be why, one more short run shows it: without
        the flags, with that variable, it must record there what the deterministic runs recorded."""
        defaults, spec = default_pair(self.runs), self.spec
        if (
            defaults is None
            or HASH_SEED in arms.allowed(spec)
            or HASH_SEED in spec.train.env
            or HASH_SEED in self.folder.outer
            # the varied run shows it, and its line
            or "hash-seed" in spec.robustness.vary
        ):
            return ""
        seed, first = spec.random_state.seeds[0], noise_floor(*defaults).first_divergence
        if (
            first is None
            or first.step > 0
            or first.kind in ("gradient", "optimizer")
            or not self.comparisons[seed].identical
        ):
            return ""
        run = self._run(RunRequest(name="pinned", arm=arms.pinned(seed, 1)))
        wanted = recorded(self.pair(seed)[0].traces, first)
        return HASH_SEED if run.good and wanted and recorded(run.traces, first) == wanted else ""

    def _measure_divergences(self) -> None:
        """Two more runs of each seed that diverged: of the first from there to the end, of others
        up to a tensor that nothing measured."""
        for number, (seed, comparison) in enumerate(
            (seed, item) for seed, item in [*self.comparisons.items()] if not item.identical
        ):
            first = next(iter(self.pair(seed)), None)
            if first is None or self.fail_fast:
                continue
            steps = order.to_measure(self.spec, comparison, first, whole=number == 0)
            if steps:
                plan, again = order.replay(self.spec, seed, steps)
                a = self._run(plan)
                b = self._run(replace(again, reference=a.traces)) if a.good else a
                self.comparisons[seed] = with_replay(comparison, b.traces) if b.good else comparison

    def _run(
        self, plan: RunRequest, live: LiveComparison | None = None, total: int = 0
    ) -> RunResult:
        """One run in a fresh workspace; its artifacts are taken out before the workspace goes. It
        is one of the results where it is one of `total`."""
        take_over = order.may_take_over(plan, self.comparisons.get(plan.arm.seed))
        site = site_of(self.spec, self.folder, plan.varied, take_over=take_over)
        if not self.runs:
            self._look_for_others()
        if total:
            self.watch.run_started(plan.name, len(self.runs) + 1, total, plan.arm.steps)
        if plan.second_of and not plan.reference:
            plan = replace(plan, reference=self._named(plan.second_of).traces)
        run = launch(self.spec, plan, site, Progress(self.watch, live).tick)
        self._note_left(run)
        self._look_for_others()
        if total:
            self.runs += (run,)
            self.watch.run_ended(run)
            if plan.arm.name == "deterministic":
                self.wrote(site.cwd)
                self._collect(run, site)
        self.changed_data = self.changed_data or changed_data(
            self.data_before, read_data_state(self.spec.data, self.spec.path.parent)
        )
        return run

    def _say(self, text: str) -> None:
        self.said = tuple(dict.fromkeys((*self.said, text)))

    def _note_left(self, run: RunResult) -> None:
        """Say what a run left outside its own places: it is gone, and what needs it finds nothing
        in any other clone either."""
        left, name, where = run.left, run.request.name, _few(run.left.unsearched[:1])
        if left.removed:
            self._say(
                f"{name} left {_few(left.removed)} outside its own folders: removed, so that no "
                "other run finds it"
            )
        if left.unsearched:
            self._say(
                f"what {name} left in {where} was not looked for: it holds more than {MOST:,} "
                "files of others"
            )

    def _look_for_others(self) -> None:
        """Whatever computes on a GPU while no run is going is not ours. Asked before the first and
        after each, where it costs none time."""
        if self.spec.hardware.device != "cpu" and (seen := other_gpu_processes(())) is not None:
            self.gpu_processes = tuple(dict.fromkeys((*(self.gpu_processes or ()), *seen)))

    def _collect(self, run: RunResult, site: Site) -> None:
        """Take the artifacts out, and look at the other files that the run wrote."""
        globs, name = self.spec.capture.artifacts, run.request.name
        into = self.folder.path / "artifacts" / name
        as_owner = partial(as_training_user, self.folder.sandbox)
        found, unmatched = collect(site.cwd, globs, into, as_owner) if globs else ((), ())
        self.artifacts[name] = {item.name: item for item in found}
        inside = os.path.relpath(site.cwd, site.workspace)
        declared = {
            os.path.normpath(os.path.join(inside, item.name, path))
            for item in found
            for path in (".", *(file for file, _, _ in item.files))
        }
        if unmatched and run.good:
            stopped = (
                f" (the training was stopped after {self.spec.train.steps} steps)"
                if run.outcome == "stopped"
                else ""
            )
            self.unmatched[name] = tuple(
                f"no file matches capture.artifacts {pattern!r} after a run{stopped}"
                for pattern in unmatched
            )
        if run.good:
            older = variation.DAY if "file-times" in run.request.varied else 0
            files, cut = changed_files(
                site.workspace, self.folder.snapshot.root, self.folder.sandbox, declared, older
            )
            printed = tuple(map(variation.as_first, run.ended.tail))
            self.left[name] = Left(files, cut, printed)


def _few(names: Sequence[str]) -> str:
    return listed([shortened(escaped(name)) for name in names], 3)
