"""The diagnosis of a gate run: does the pairs of short runs that the search asks for, and reads what they showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from repro_gate.compare.tolerance import outside_tolerance
from repro_gate.diagnosis.diagnose import REPLAYS, Undone, diagnose
from repro_gate.diagnosis.model import Diagnosis, OperatorCall, Pair, Setting, Use
from repro_gate.diagnosis.search import Exhausted, Experiments
from repro_gate.factors import BY_NAME
from repro_gate.runs import arms
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

Seen = Callable[[str, Setting, Pair], None]  # is told of each pair of runs: what it was for, how it was done, what it showed


def diagnosis_of(spec: Spec, folder: GateFolder, results: Results, watch: Watch, seen: Seen = lambda *_: None) -> Diagnosis | None:
    """Why the deterministic runs of the first seed that diverged did so; None where none did, what diverged is an artifact or within the
    tolerance, and under `diagnosis: false`."""
    bounds, tolerance = spec.diagnosis, spec.determinism.tolerance
    seed, first = next(
        ((seed, item.first_divergence) for seed, item in results.comparisons.items() if item.first_divergence is not None), (0, None)
    )
    if bounds is None or first is None or first.kind == "artifact" or results.interrupted:
        return None
    if tolerance is not None and not outside_tolerance(results.comparisons[seed], tolerance):
        return None
    began, done = monotonic(), 0

    def pair(setting: Setting) -> Pair:
        nonlocal done
        if monotonic() - began > bounds.timeout:
            raise Exhausted
        done += 1
        watch.said(f"diagnosis: {_told(setting)}")
        found = _pair(spec, folder, seed, setting, done)
        seen(_told(setting), setting, found)
        return found

    found = diagnose(first, _undone(results.runs), Experiments(pair, bounds.runs // 2))
    return replace(found, runs=2 * done, seconds=round(monotonic() - began, 3))


def _told(setting: Setting) -> str:
    """What a pair of runs is for, in a few words."""
    if setting.replay is not None:
        return f"{setting.replay[0]} again, {REPLAYS} times on its own inputs"
    if setting.operators:
        return "two runs, every operator of the step recorded"
    if setting.watch:
        return "two runs, every use of a factor watched"
    names = ", ".join(sorted(f"{unit.factor} at {unit.site[0]}:{unit.site[1]}" if unit.site else unit.factor for unit in setting.pinned))
    return f"two runs with {names} held fixed"


def _pair(spec: Spec, folder: GateFolder, seed: int, setting: Setting, number: int) -> Pair:
    whole = {unit.factor for unit in setting.pinned if unit.site is None}
    pins: dict[str, list[list[object]] | None] = dict.fromkeys(whole)
    for unit in sorted(setting.pinned - {unit for unit in setting.pinned if unit.factor in whole}):
        sites = pins.setdefault(unit.factor, [])
        if sites is not None and unit.site is not None:
            sites.append(list(unit.site))
    chosen = [BY_NAME[name] for name in pins]
    probe: dict[str, object] = {"factors": {"watch": setting.watch, "pin": pins}, "every": 1}
    if setting.operators:
        replay = None if setting.replay is None else [*setting.replay, REPLAYS]
        probe["operators"] = {"step": setting.steps - 1, "replay": replay}
    arm = arms.deterministic(seed, arms.allowed(spec), setting.steps)
    name = f"diagnosis-{number}"
    plan = Plan(
        name=f"{name}a",
        arm=arm,
        probe=probe,
        environment={key: value for factor in chosen for key, value in factor.pinned.items()},
        fixed_addresses=any(factor.fixed_addresses for factor in chosen),
    )
    quick = not setting.operators and not setting.watch
    results = run_series(spec, folder, Watch(), (plan, replace(plan, name=f"{name}b", second_of=plan.name)), fail_fast=quick)
    runs = [run for run in results.runs if run.plan.name.startswith(name)]
    comparison = results.comparisons.get(seed)
    if len(runs) < 2 or comparison is None:
        return Pair(failed=next((run.problem for run in runs if not run.good), "it could not be compared"))
    uses = tuple(tuple(_uses(run.traces)) for run in runs)
    operators = tuple(tuple(_operators(run.traces)) for run in runs)
    first = comparison.first_divergence
    recorded = None if first is None or first.kind == "artifact" else first
    return Pair(first=recorded, uses=(uses[0], uses[1]), operators=(operators[0], operators[1]))


def _uses(traces: Sequence[Trace]) -> list[Use]:
    return [
        Use(
            process=trace.key,
            step=item.step,
            factor=item.factor,
            source=item.source,
            site=(item.file, item.line),
            call=item.call,
            count=item.count,
            digest=item.digest,
        )
        for trace in traces
        for item in trace.uses
        if item.factor in BY_NAME
    ]


def _operators(traces: Sequence[Trace]) -> list[OperatorCall]:
    return [
        OperatorCall(
            process=trace.key,
            name=item.op,
            count=item.count,
            phase=item.phase,
            node=item.node,
            site=(item.file, item.line),
            inputs=item.inputs,
            outputs=item.outputs,
            simple=item.simple,
            distinct=item.distinct,
        )
        for trace in traces
        for item in trace.operators
    ]


def _undone(runs: Sequence[Run]) -> list[Undone]:
    """Flags that the training switched off in a deterministic run, each line once."""
    found = {
        (item.flag, item.value, (item.file, item.line)): None
        for run in runs
        if run.plan.arm.name == "deterministic"
        for trace in run.traces
        for item in trace.undone
    }
    return [Undone(*key) for key in found]
