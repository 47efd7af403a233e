"""The series of runs of one gate run: in which order they are done, what is compared as soon as it can be, and what is kept of each.

Deterministic, default, deterministic, default, so that the machine's drift falls on both arms; then the reseeded control; where the two
deterministic runs diverge, two short replay runs that keep the tensors of that step, to say how far they are apart.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

from repro_gate.compare.artifacts import Artifact, LeafDifference, compare_artifacts
from repro_gate.compare.distances import with_distance
from repro_gate.compare.model import Comparison, Divergence, NoiseFloor
from repro_gate.compare.noise_floor import noise_floor, recorded
from repro_gate.compare.traces import compare_runs, processes
from repro_gate.compare.unrecorded import differing_modules, notices
from repro_gate.compare.written import Left
from repro_gate.data.declared import changed_data, read_data_state, resolve_data
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import listed
from repro_gate.files import copy_file, make_folder, remove_tree
from repro_gate.machine import other_gpu_processes
from repro_gate.runs import arms
from repro_gate.runs.artifacts import MAX_SECONDS, Collected, Interpreter, collect, read
from repro_gate.runs.compile_cache import FOLDER, copy_cache
from repro_gate.runs.early_exit import LiveView, Progress
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.interpreter import prepared, training_interpreter
from repro_gate.runs.launch import Plan, Run, Site, launch
from repro_gate.runs.progress import Watch
from repro_gate.runs.workspaces import fresh_workspace
from repro_gate.runs.written import written_files
from repro_gate.sandbox.as_user import as_training_user
from repro_gate.sandbox.cleanup import MOST
from repro_gate.sandbox.ownership import give, let_in
from repro_gate.spec.errors import escaped, shortened
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace, TraceError
from repro_gate.trace.reader import trace_files

MEASURED_KINDS = ("batch", "buffer", "gradient", "parameter", "optimizer")


class Series:
    """The runs of one gate run, as they come in. State, because a divergence is to be shown while the second run is still going."""

    def __init__(self, spec: Spec, ground: GateFolder, watch: Watch, fail_fast: bool) -> None:
        self.spec, self.gate_folder, self.watch, self.fail_fast = spec, ground, watch, fail_fast
        self.runs: list[Run] = []
        self.comparisons: dict[int, Comparison] = {}
        self.control: Run | None = None
        self.artifacts: dict[str, dict[str, Collected]] = {}  # run name -> name -> file
        self._contents: dict[Path, Artifact] = {}  # by the path of a file that was read
        self.artifact_notes: tuple[str, ...] = ()
        self.notes: dict[str, None] = dict.fromkeys(ground.snapshot.notes)  # what the workspaces do not hold, what could not be read
        self.unrecorded: dict[str, tuple[str, str]] = {}  # id of a notice -> message and remedy
        self._left: dict[str, Left] = {}  # run name -> the files and the output that nothing compares
        self.changed_data: tuple[str, ...] = ()
        self.interrupted = ""
        self.stopped_early = False
        self._allow = frozenset(item.flag for item in spec.determinism.allow)
        self._data_before = read_data_state(spec.data, spec.path.parent)
        self._total = 0
        self.floor: NoiseFloor | None = None  # of the default runs, once both came to their end
        self._reading_left = MAX_SECONDS
        self.gpu_processes: tuple[str, ...] | None = None  # of others, seen before the runs; None: nobody could look

    def run_all(self, control_steps: int) -> None:
        """Do every run of the series, in order, until one ends badly. Ctrl-C ends the run in progress and the series."""
        steps, first = self.spec.train.steps, self.spec.random_state.seeds[0]
        with_defaults = self.spec.cost.measure
        self._total = (4 if with_defaults else 2) + 1 + 2 * (len(self.spec.random_state.seeds) - 1)
        try:
            if self._gate_seed(first, steps, with_defaults):
                self._control(first, min(control_steps, steps or control_steps))
                self._measure_noise(first)
                for seed in self.spec.random_state.seeds[1:]:
                    if not self._gate_seed(seed, steps, False):
                        break
            self._measure_divergences()
        except KeyboardInterrupt:
            self.interrupted = "the gate was interrupted"
        except (Inconclusive, OSError) as error:
            if not self.runs:
                raise  # nothing was found out yet
            self.interrupted = f"the series ended early: {error}"

    def run_pair(self, label: str) -> None:
        """Only the deterministic pair of the first seed, their names beginning with `label`."""
        self._total = 2
        try:
            self._gate_seed(self.spec.random_state.seeds[0], self.spec.train.steps, False, label)
        except KeyboardInterrupt:
            self.interrupted = "the gate was interrupted"
        except (Inconclusive, OSError) as error:
            self.interrupted = f"the series ended early: {error}"

    def keep_traces(self, target: Path) -> None:
        """Copy the traces of all runs to `target`, one folder for each run: regular files only, whatever else training put beside them."""
        for run in self.runs:
            try:
                (target / run.plan.name).mkdir(parents=True, exist_ok=True)
                for path in trace_files(run.folder):
                    copy_file(path, target / run.plan.name / path.name)
                    if self.gate_folder.isolation.own_user:
                        os.chmod(target / run.plan.name / path.name, 0o644)  # its own mode was the training's to read only
            except (OSError, TraceError) as error:
                self.notes[f"the traces of {run.plan.name} were not kept: {error}"] = None

    def pair(self, seed: int | None = None) -> tuple[Run, ...]:
        """The deterministic runs of one seed, the first where none is named, that can be compared."""
        seed = self.spec.random_state.seeds[0] if seed is None else seed
        return tuple(run for run in self.runs if run.plan.arm.name == "deterministic" and run.plan.arm.seed == seed and run.good)[:2]

    def default_pair(self) -> tuple[Sequence[Trace], Sequence[Trace]] | None:
        """The traces of the two default runs, where both came to their end."""
        good = [run.traces for run in self.runs if run.plan.arm.name == "default" and run.good]
        return (good[0], good[1]) if len(good) == 2 else None

    def cost_pairs(self) -> list[tuple[Sequence[Trace], Sequence[Trace]]]:
        """(deterministic, default) traces of neighbouring runs, where all four came to their end."""
        on, off = [run.traces for run in self.pair()], self.default_pair()
        return list(zip(on, off, strict=True)) if off is not None and len(on) == 2 else []

    @property
    def artifact_counts(self) -> dict[str, int]:
        """Run name -> number of artifacts found after it."""
        return {name: len(found) for name, found in self.artifacts.items()}

    def _gate_seed(self, seed: int, steps: int | None, with_defaults: bool, label: str = "") -> bool:
        """The deterministic pair of one seed, with the default pair between. False where the series has to end."""
        label += "" if seed == self.spec.random_state.seeds[0] else f"seed{seed}-"
        on, off = arms.deterministic(seed, self._allow, steps), arms.default(seed, steps)
        first = self._run(Plan(name=f"{label}deterministic-1", arm=on, keep_final=True, observe=not self.runs))
        if not first.good:
            return False
        before = self._run(Plan(name="default-1", arm=off, keep_final=True)) if with_defaults else None
        if before is not None and not before.good:
            return False
        live = LiveView(self.watch, first.traces, self.fail_fast and self.spec.determinism.tolerance is None)
        second = self._run(Plan(name=f"{label}deterministic-2", arm=on, keep_final=True, reference=first.traces), live)
        if live.found is not None and (live.fail_fast or (not second.good and self.spec.determinism.tolerance is None)):
            self.comparisons[seed] = _so_far(first, second, live.found)  # a run that ended because it had diverged still proves that it had
            self.stopped_early = live.fail_fast
            return False
        if not second.good:
            return False
        differences, leaves = self._differing(first.plan.name, self, second.plan.name)
        self.comparisons[seed] = compare_runs(first.traces, second.traces, differences, leaves)
        if self.comparisons[seed].identical and not self.unrecorded:  # else what is not recorded only follows
            self.unrecorded = notices(self._left[first.plan.name], self._left[second.plan.name])
            self._note_modules(differing_modules(first.traces, second.traces))
        if before is not None:
            return self._run(Plan(name="default-2", arm=off, keep_final=True, reference=before.traces)).good
        return True

    def _control(self, seed: int, steps: int) -> None:
        self.control = self._run(Plan(name="reseeded", arm=arms.reseeded(seed, self._allow, steps)))

    def _measure_noise(self, seed: int) -> None:
        """The noise floor. Where only the default runs diverge, and so early that the hash seed may be why, one more short run shows it:
        without the flags, with `PYTHONHASHSEED` alone, it must record in that place what the deterministic runs recorded."""
        defaults = self.default_pair()
        if defaults is None:
            return
        self.floor = noise_floor(*defaults)
        first, name = self.floor.first_divergence, arms.HASH_SEED
        fixed = name in self._allow or name in self.spec.train.env or name in self.gate_folder.outer
        if first is None or first.step > 0 or first.kind in ("gradient", "optimizer") or fixed or not self.comparisons[seed].identical:
            return
        run = self._run(Plan(name="pinned", arm=arms.pinned(seed, 1)), record=False)
        wanted = recorded(self.pair()[0].traces, first)
        if run.good and wanted and recorded(run.traces, first) == wanted:
            self.floor = replace(self.floor, reproducible_by=name)

    def _run(self, plan: Plan, live: LiveView | None = None, record: bool = True) -> Run:
        """One run in a fresh workspace; its artifacts are taken out before the workspace goes."""
        folder, place = self.spec.path.parent, self.gate_folder.place / "run"
        remove_tree(place)  # whole, so that nothing one run leaves beside its workspace reaches the next
        place.mkdir()
        let_in(self.gate_folder.isolation, place)
        workspace = fresh_workspace(self.gate_folder.snapshot, place, self.spec.data, folder)
        cwd = Path(os.path.normpath(workspace.directory / self.spec.train.working_directory))
        if not cwd.is_relative_to(workspace.root):
            raise UsageError(
                f"train.working-directory {self.spec.train.working_directory!r} leaves the checkout", remedy="name a folder inside it"
            )
        data = resolve_data(self.spec.data, folder)
        ground = self.gate_folder
        site = Site(
            place=place,
            workspace=workspace.root,
            cwd=cwd,
            traces=ground.place / "traces",
            outer=ground.outer,
            data=data,
            isolation=ground.isolation,
            original=ground.original,
            began=ground.began,
        )
        if not self.runs:
            self._look_for_others()
        if record:
            self.watch.run_started(plan.name, len(self.runs) + 1, self._total, plan.arm.steps)
        progress = Progress(self.watch, live)
        kept, cache = self.gate_folder.place / "compile-cache", place / "tmp" / FOLDER
        if plan.arm.name != "deterministic" and kept.is_dir():
            copy_cache(kept, cache)  # the deterministic runs, which the verdict rests on, compile each for itself
        run = launch(self.spec, plan, site, progress.tick)
        first = self.spec.train.compile_cache and not self.runs and os.path.lexists(cache) and not kept.exists()
        if first and not copy_cache(cache, kept, partial(as_training_user, self.gate_folder.isolation)):
            self.notes[f"the compile cache of {plan.name} was not copied: every run compiles again"] = None
        self._note_left(run)
        self._look_for_others()
        if record:
            self.runs.append(run)
            self.watch.run_ended(run)
            self._collect(plan, cwd, workspace.root)
        self.changed_data = self.changed_data or changed_data(self._data_before, read_data_state(self.spec.data, self.spec.path.parent))
        return run

    def _note_modules(self, names: Sequence[str]) -> None:
        if names:
            shown = listed([shortened(escaped(name)) for name in names], 3)
            self.unrecorded["unrecorded/modules"] = (
                f"what no optimizer moves differs between two runs whose training is the same: {shown}",
                "an average, a snapshot or a counter: see what it is made from, and seed or order that",
            )

    def _note_left(self, run: Run) -> None:
        """Say what a run left outside its own places: it is gone, and what needs it finds nothing in any other clone either."""
        left = run.left
        if left.removed:
            named = listed([shortened(escaped(path)) for path in left.removed], 3)
            self.notes[f"{run.plan.name} left {named} outside its own folders: removed, so that no other run finds it"] = None
        if left.unsearched:
            where = shortened(escaped(left.unsearched[0]))
            self.notes[f"what {run.plan.name} left in {where} was not looked for: it holds more than {MOST:,} files of others"] = None

    def _look_for_others(self) -> None:
        """Whatever computes on a GPU while no run is going is not ours. Asked before the first and after each, where it costs none time."""
        if self.spec.hardware.device != "cpu":
            seen = other_gpu_processes(())
            if seen is not None:
                self.gpu_processes = tuple(dict.fromkeys((*(self.gpu_processes or ()), *seen)))

    def _collect(self, plan: Plan, cwd: Path, workspace: Path) -> None:
        declared: set[str] = set()
        if self.spec.capture.artifacts and plan.arm.name == "deterministic" and cwd.is_dir():
            sight = partial(as_training_user, self.gate_folder.isolation)
            found, unmatched = collect(cwd, self.spec.capture.artifacts, self.gate_folder.place / "artifacts" / plan.name, sight)
            names = [path for item in found for path in (item.name, *(os.path.join(item.name, file) for file, _, _ in item.files))]
            declared = {os.path.normpath(os.path.join(os.path.relpath(cwd, workspace), name)) for name in names}
            self.artifacts[plan.name] = {item.name: item for item in found}
            if unmatched and self.runs[-1].good:
                stopped = f" (the training was stopped after {self.spec.train.steps} steps)" if self.runs[-1].outcome == "stopped" else ""
                self.artifact_notes = tuple(f"no file matches capture.artifacts {pattern!r} after a run{stopped}" for pattern in unmatched)
        if plan.arm.name == "deterministic" and self.runs[-1].good:
            files, cut = written_files(workspace, self.gate_folder.snapshot.root, self.gate_folder.isolation, declared)
            self._left[plan.name] = Left(files, cut, self.runs[-1].ended.tail)

    def contents(self, items: Sequence[Collected]) -> list[Artifact]:
        """What these artifacts hold. All that were not read before are read in one start of the training's interpreter, and removed."""
        waiting = [item for item in items if item.path not in self._contents]
        if waiting:
            began, ground = monotonic(), self.gate_folder
            place = make_folder(ground.place / "reading")
            environment = prepared(self.spec, ground.outer, ground.isolation, place)
            try:
                python = training_interpreter(self.spec, environment)
            except Inconclusive:  # the training needs none: its files are compared by their bytes
                python = "python"
            (place / "files").mkdir()
            moved = [
                item if item.note else replace(item, path=place / "files" / f"{number:04d}{item.path.suffix}")
                for number, item in enumerate(waiting)
            ]
            for old, new in zip(waiting, moved, strict=True):
                if not old.note:
                    os.rename(old.path, new.path)
            give(ground.isolation, place / "files")
            found, _ = read(moved, Interpreter(python, environment, ground.isolation, place), self._reading_left)
            remove_tree(place)
            self._reading_left -= monotonic() - began
            for item, artifact in zip(waiting, found, strict=True):
                self._contents[item.path] = artifact
                if artifact.note:
                    self.notes[f"artifact {item.name}: {artifact.note}"] = None
        return [self._contents[item.path] for item in items]

    def compare_artifacts_with(self, other: Series) -> tuple[tuple[Divergence, ...], int]:
        """The artifacts of this series' first run against those of another's: what differs, and the number of values compared."""
        return self._differing(self.pair()[0].plan.name, other, other.pair()[0].plan.name)

    def _differing(self, first: str, other: Series, second: str) -> tuple[tuple[Divergence, ...], int]:
        """A file with the same bytes in both runs is not looked into, and counts as one value."""
        a, b = self.artifacts.get(first, {}), other.artifacts.get(second, {})
        found = [
            Divergence(step=-1, kind="artifact", name=name, detail=f"written by the {'first' if name in a else 'second'} run only")
            for name in sorted(a.keys() ^ b.keys())
        ]
        shared = sorted(a.keys() & b.keys())
        unlike = [name for name in shared if a[name].note or b[name].note or a[name].digest != b[name].digest]
        if other is self:
            sides = self.contents([*(a[name] for name in unlike), *(b[name] for name in unlike)])
        else:
            sides = [*self.contents([a[name] for name in unlike]), *other.contents([b[name] for name in unlike])]
        count = len(a) - len(unlike)
        for name, left, right in zip(unlike, sides, sides[len(unlike) :], strict=False):
            found += (as_divergence(item, -1) for item in compare_artifacts(left, right, name))
            count += len(left.leaves)
        step = max((run.steps for run in self.runs), default=0) - 1
        return tuple(replace(item, step=max(step, -1)) for item in sorted(found, key=lambda item: item.name.partition(": ")[0])), count

    def _measure_divergences(self) -> None:
        """Replay runs for each seed whose first divergence is a tensor that was not kept: again up to that step, keeping it."""
        for seed, comparison in list(self.comparisons.items()):
            first = comparison.first_divergence
            if first is None or first.distance is not None or first.detail or first.kind not in MEASURED_KINDS or self.fail_fast:
                continue
            if first.step >= comparison.steps or self.interrupted:
                continue
            arm = arms.deterministic(seed, self._allow, max(first.step, 0) + 1)
            a = self._run(Plan(name=f"replay-1-seed{seed}", arm=arm, keep_step=first.step), record=False)
            b = (
                self._run(Plan(name=f"replay-2-seed{seed}", arm=arm, keep_step=first.step, reference=a.traces), record=False)
                if a.good
                else a
            )
            if not b.good:
                continue
            measured = {
                (label, item.step, item.kind, item.name): item for label, trace in processes(b.traces).items() for item in trace.distances
            }
            self.comparisons[seed] = replace(comparison, first_divergence=with_distance(first, measured))


def as_divergence(item: LeafDifference, step: int) -> Divergence:
    """A differing leaf of an artifact as the report's divergence. Short values are shown, digests of tensors are not."""
    return Divergence(
        step=step,
        kind="artifact",
        name=item.name,
        dtype=item.dtype,
        shape=item.shape,
        values=item.values if item.shape is None else None,
        detail=item.detail,
    )


def _so_far(first: Run, second: Run, found: Divergence) -> Comparison:
    """The comparison of a second run that was ended at its divergence: what both have, and no word on what it did not reach."""
    reached = max((found.step, *(block.step for trace in second.traces for block in trace.blocks)))  # what was seen may not be read back
    cut = [replace(trace, blocks=[block for block in trace.blocks if block.step < reached]) for trace in first.traces]
    rest = [replace(trace, blocks=[block for block in trace.blocks if block.step < reached]) for trace in second.traces]
    comparison = compare_runs(cut, rest) if reached > found.step else None
    if comparison is None or comparison.first_divergence is None:
        return Comparison(identical=False, steps=reached + 1, tensors=0, differing=0, first_divergence=found)
    return replace(comparison, steps=reached + 1)
