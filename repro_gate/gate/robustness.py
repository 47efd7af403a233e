"""What a training that is repeatable but not robust depends on: does the runs that the search asks for, each compared with the first."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

from repro_gate.checks.interface import NotRobust
from repro_gate.compare.model import Comparison
from repro_gate.compare.traces import compare_runs
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.diagnosis.robustness import SURROUNDINGS, Outcome, diagnose
from repro_gate.diagnosis.search import Exhausted
from repro_gate.gate.diagnose import labelled, uses_of
from repro_gate.report.wording import place_of
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results, Varied, before_step
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

_FOR_THE_VERDICT = 2  # experiments that are always done: varied in nothing, and in all of it again
_WATCH = {"watch": True, "surroundings": True}
_TOLD = {item.uses for item in SURROUNDINGS.values()}  # the names of those uses in a trace


def robustness_of(spec: Spec, folder: GateFolder, results: Results, watch: Watch) -> tuple[Diagnosis | None, Results]:
    """Which of what was varied a run depends on, where the plain runs are the same and the varied one is not; None where that is not so.
    And the results: where one more run that is varied in nothing diverges too, or one that is varied in all of it does not, it was chance:
    the training is not repeatable after all."""
    broken = results.not_robust
    if broken is None or results.interrupted:
        return None, results
    first = next(run for run in results.runs if run.plan.name == broken.run.plan.second_of)
    bounds = spec.diagnosis
    steps, began, done, plain = _steps(broken), monotonic(), 0, dict[int, Comparison]()

    def run(varied: frozenset[str]) -> Outcome:
        nonlocal done
        late = bounds is None or done >= bounds.runs or monotonic() - began > bounds.timeout
        if late and done >= _FOR_THE_VERDICT:
            raise Exhausted
        done += 1
        watch.said(f"robustness: one run with {', '.join(sorted(varied)) or 'nothing'} varied")
        arm = replace(first.plan.arm, steps=steps if steps is not None else first.plan.arm.steps)
        plan = Plan(name=f"robustness-{done}", arm=arm, varied=varied, probe={"factors": _WATCH})
        series = run_series(spec, folder, Watch(), (plan,), measure=False)
        comparison = _compared(results, series, first, steps)
        if not varied and comparison is not None and not comparison.identical:
            plain[first.plan.arm.seed] = comparison
        return Outcome(comparison is None or not comparison.identical, tuple(uses_of(list(labelled(series.runs[0].traces)), _TOLD)))

    compared = broken.comparison
    diverged = compared.first_divergence if compared is not None else None
    where = f"in how it ends ({broken.run.problem})" if compared is None or diverged is None else place_of(diverged, compared.steps)
    names = [name for name in spec.robustness.vary if name in broken.run.plan.varied]
    found = diagnose(names, 10**9 if diverged is None else max(diverged.step, 0), where, run)
    if found is None and compared is not None:
        plain[first.plan.arm.seed] = compared  # two equal runs and a varied one that is another by chance: the training is not repeatable
    if plain:
        return None, replace(results, comparisons={**results.comparisons, **plain})
    if found is None:
        return None, results
    return replace(found, runs=done, seconds=round(monotonic() - began, 3)), results


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


def _compared(results: Results, series: Results, first: Run, steps: int | None) -> Comparison | None:
    """An experiment's run compared with the first, in the steps that both took; None where it ended badly."""
    run = series.runs[0]
    if not run.good:
        return None
    if steps is None and first.plan.arm.seed == results.spec.random_state.seeds[0]:
        return results.compare_with(series)
    a, b = ([trace if steps is None else _cut(trace, steps) for trace in item.traces] for item in (first, run))
    return compare_runs(a, b)


def _cut(trace: Trace, steps: int) -> Trace:
    return replace(before_step(trace, steps), steps=trace.steps[:steps])
