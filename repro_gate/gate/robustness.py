"""What a training that is repeatable but not robust depends on: does the runs that the search asks for, each compared with the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from repro_gate.checks.interface import NotRobust
from repro_gate.compare.traces import compare_runs
from repro_gate.diagnosis.model import Diagnosis, Use
from repro_gate.diagnosis.robustness import Outcome, diagnose
from repro_gate.diagnosis.search import Exhausted
from repro_gate.report.wording import place_of
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results, Varied, before_step
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

_WATCH = {"watch": True, "surroundings": True}


def robustness_of(spec: Spec, folder: GateFolder, results: Results, watch: Watch) -> Diagnosis | None:
    """Which of what was varied a run depends on, where the plain runs are the same and the varied one is not; None where that is not so."""
    broken = results.not_robust
    if broken is None or results.interrupted:
        return None
    first, bounds = next(run for run in results.runs if run.plan.name == broken.run.plan.second_of), spec.diagnosis
    steps, began, done = _steps(broken), monotonic(), 0

    def run(varied: frozenset[str]) -> Outcome:
        nonlocal done
        if bounds is None or done >= bounds.runs or monotonic() - began > bounds.timeout:
            raise Exhausted
        done += 1
        watch.said(f"robustness: one run with {', '.join(sorted(varied)) or 'nothing'} varied")
        arm = replace(first.plan.arm, steps=steps if steps is not None else first.plan.arm.steps)
        plan = Plan(name=f"robustness-{done}", arm=arm, varied=varied, probe={"factors": _WATCH})
        series = run_series(spec, folder, Watch(), (plan,))
        return Outcome(_differs(results, series, first, steps), tuple(_uses(series.runs[0].traces)))

    compared = broken.comparison
    diverged = compared.first_divergence if compared is not None else None
    where = f"in how it ends ({broken.run.problem})" if compared is None or diverged is None else place_of(diverged, compared.steps)
    names = [name for name in spec.robustness.vary if name in broken.run.plan.varied]
    found = diagnose(names, 10**9 if diverged is None else max(diverged.step, 0), where, run)
    return replace(found, runs=done, seconds=round(monotonic() - began, 3))


def told(found: Diagnosis | None) -> NotRobust | None:
    """What the check says of it."""
    if found is None:
        return None
    every = (found, *found.also)
    lines = [f"{item.file}:{item.line}: {item.call}" for item in every if item.file]
    return NotRobust(found.message, (*lines, *(text for item in every for text in item.evidence)), found.remedy)


def _steps(broken: Varied) -> int | None:
    """How many steps an experiment needs; None: all of them, and what the training leaves at its end."""
    compared = broken.comparison
    first = compared.first_divergence if compared is not None else None
    if compared is None or first is None or first.kind == "artifact" or first.detail or first.step + 1 >= compared.steps:
        return None
    return max(first.step, 0) + 1


def _differs(results: Results, series: Results, first: Run, steps: int | None) -> bool:
    """Whether an experiment's run is another than the first: it ended badly, or diverges in the steps that both took."""
    run = series.runs[0]
    if not run.good:
        return True
    if steps is None and first.plan.arm.seed == results.spec.random_state.seeds[0]:
        return not results.compare_with(series).identical
    a, b = ([trace if steps is None else _cut(trace, steps) for trace in item.traces] for item in (first, run))
    return not compare_runs(a, b).identical


def _cut(trace: Trace, steps: int) -> Trace:
    return replace(before_step(trace, steps), steps=trace.steps[:steps])


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
            direct=item.direct,
        )
        for trace in traces
        for item in trace.uses
    ]
