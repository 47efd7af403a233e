"""Does one run (`run`), or all runs of a series (`do_runs`). `order.py` decides which run comes
next, `results.py` compares them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from repro_gate.compare.unrecorded import Left
from repro_gate.data.declared import changed_data, read_data_state
from repro_gate.machine import gpu_processes
from repro_gate.runs import variation
from repro_gate.runs.artifacts import collect
from repro_gate.runs.changed_files import changed_files
from repro_gate.runs.ending import PREEMPTED
from repro_gate.runs.launch import RunRequest, RunResult, launch
from repro_gate.runs.legs import following
from repro_gate.runs.order import coming, next_run
from repro_gate.runs.progress import Progress, Watch
from repro_gate.runs.reading import ArtifactReader
from repro_gate.runs.results import EARLY_ENDS, Results
from repro_gate.runs.watching import Tick
from repro_gate.runs.workspaces import (
    GateFolder,
    Workspace,
    fresh_workspace,
    used_workspace,
)
from repro_gate.sandbox.cleanup import MOST
from repro_gate.sandbox.identity import as_training_user
from repro_gate.spec.errors import few
from repro_gate.spec.model import Spec


def do_runs(
    spec: Spec,
    folder: GateFolder,
    watch: Watch,
    requests: Sequence[RunRequest],
    *,
    fail_fast: bool = False,
    sound: Callable[..., bool] = lambda **_: True,
) -> Results:
    """Do these runs and the further ones that they require, and return the results. `sound` returns
    whether data is as declared; before the first run it does not wait for the hashing. Ctrl-C ends
    the current run and the series. Raises Inconclusive or OSError if not even the first run could
    be done."""
    results = Results(
        spec=spec,
        folder=folder,
        reader=ArtifactReader(spec, folder),
        fail_fast=fail_fast,
        warnings=folder.snapshot.notes,
    )
    before = read_data_state(spec.data, spec.path.parent)
    watch.said(coming(requests))
    try:
        _look_for_others(results)
        results.unsound = not sound(waits=False)
        while request := next_run(requests, results):
            if request.announcement:
                watch.said(request.announcement)
            result = _watched(requests, request, results, watch)
            results.add(result)
            _note_leftovers(results, result)
            _look_for_others(results)
            after = read_data_state(spec.data, spec.path.parent)
            results.changed_data = results.changed_data or changed_data(before, after)
            results.unsound = not sound(waits=True)
        if results.unsound:
            results.runs = results.auxiliary = ()
    except EARLY_ENDS as error:
        if not results.runs and not isinstance(error, KeyboardInterrupt):
            raise  # without any result there is nothing to report
        results.interrupt(error)
    return results


def run(
    spec: Spec, folder: GateFolder, request: RunRequest, tick: Tick = lambda _: None
) -> RunResult:
    """Do one run in a fresh workspace. Its artifacts are copied out before the workspace is
    removed."""
    leg = request.leg
    workspace = (
        used_workspace(spec, folder)
        if leg and leg.checkpoint
        else fresh_workspace(spec, folder, request.varied)
    )
    if leg is None:
        result = launch(spec, request, folder, workspace, tick)
    else:
        with following(leg, workspace, folder, tick) as watch:
            result = launch(spec, request, folder, workspace, watch.look)
            ending = watch.ending(result.ended)
            end = watch.end(result.traces)
            result = replace(result, leg=end, **(vars(ending) if ending else {}))
    is_whole = request.collect and result.outcome != PREEMPTED
    return _collected(spec, folder, workspace, result) if is_whole else result


def _watched(
    requests: Sequence[RunRequest], request: RunRequest, results: Results, watch: Watch
) -> RunResult:
    """Do one run of a series, and report its progress to the watch."""
    if request.counts == "never":
        return run(results.spec, results.folder, request)
    progress = Progress(
        watch=watch,
        first=request.reference if request.arm.name == "deterministic" else (),
        fail_fast=results.fail_fast and results.spec.determinism.tolerance is None,
        varied=bool(request.varied),
    )
    number = len(results.runs) + 1
    names = {item.name for item in requests} - results.counted - {request.name}
    watch.run_started(request.name, number, number + len(names), request.arm.steps)
    result = run(results.spec, results.folder, request, progress.tick)
    watch.run_ended(result)
    return result


def _collected(
    spec: Spec, folder: GateFolder, workspace: Workspace, result: RunResult
) -> RunResult:
    """Return the result with the declared artifacts, which are taken out of the workspace, and with
    the other files that the run wrote."""
    globs = spec.capture.artifacts
    into = folder.path / "artifacts" / result.name
    as_owner = partial(as_training_user, folder.sandbox)
    found, unmatched = (
        collect(workspace.cwd, globs, into, as_owner) if globs else ((), ())
    )
    artifacts = {item.name: item for item in found}
    if not result.good:
        return replace(result, artifacts=artifacts)
    inside = os.path.relpath(workspace.cwd, workspace.root)
    declared = {
        os.path.normpath(os.path.join(inside, item.name, path))
        for item in found
        for path in (".", *(file for file, _, _ in item.files))
    }
    older = variation.DAY if "file-times" in result.request.varied else 0
    files, cut = changed_files(
        workspace.root, folder.snapshot.root, folder.sandbox, declared, older
    )
    printed = tuple(map(variation.as_first, result.ended.tail))
    return replace(
        result,
        artifacts=artifacts,
        unmatched=unmatched,
        unrecorded=Left(files, cut, printed),
    )


def _note_leftovers(results: Results, run: RunResult) -> None:
    """Add notes about files that a run left outside its own folders. They are removed, as any other
    clone lacks them too."""
    left = run.left
    name = run.name
    if left.removed:
        results.warn(
            f"{name} left {few(left.removed)} outside its own folders; the gate removed it, so "
            "that no other run finds it"
        )
    if left.unsearched:
        results.warn(
            f"files that {name} left in {few(left.unsearched[:1])} were not searched for: it has "
            f"more than {MOST:,} files of others"
        )


def _look_for_others(results: Results) -> None:
    """Record processes that compute on a GPU between our runs, since these are not ours. Looking
    before the first run and after each one slows down none of them."""
    if results.spec.hardware.device != "cpu":
        found = gpu_processes()
        if found is not None:
            before = results.gpu_processes or ()
            results.gpu_processes = tuple(dict.fromkeys((*before, *found)))
