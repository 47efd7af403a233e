"""What a training that is repeatable but not robust depends on: does the runs that the search asks
for, each compared with the first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic, time

from repro_gate.checks.interface import EvidenceLine, Finding, missing
from repro_gate.compare.model import Comparison
from repro_gate.compare.tolerance import alike
from repro_gate.compare.traces import compare_runs
from repro_gate.diagnosis.model import Diagnosis, Exhausted
from repro_gate.diagnosis.robustness import (
    SURROUNDINGS,
    Outcome,
    at_line,
    called,
    diagnose,
    differing,
)
from repro_gate.diagnosis.suspects import first_difference
from repro_gate.errors import Inconclusive
from repro_gate.gate.diagnose import LINES, labelled, uses_of
from repro_gate.report.numbers import duration
from repro_gate.report.wording import place_of
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.ending import last_line
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results, Varied, before_step
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Trace, Used

_FOR_THE_VERDICT = 2  # experiments that are always done: varied in nothing, and in all of it again
_WATCH = {"watch": True, "surroundings": True}
_TOLD = {called(name) for name in SURROUNDINGS}  # the names of those uses in a trace


def robustness_of(
    spec: Spec, folder: GateFolder, results: Results, watch: Watch
) -> tuple[Diagnosis | None, Results]:
    """Return which of what was varied a run depends on, where the plain runs of its seed are the
    same and the varied one is not; None where there is no such run. And the results: where a varied
    run differs or fails by chance, its training is not repeatable after all."""
    found = None
    for broken in results.not_robust:
        if results.interrupted:
            break
        diagnosis, results = _look_into(broken, spec, folder, results, watch, search=found is None)
        found = found or diagnosis
    if found is None:
        return None, results
    ended = (
        (run.plan.name, last_line(run.ended.tail))
        for run in (item.run for item in results.not_robust)
        if not run.good
    )
    return replace(
        found,
        evidence=(*found.evidence, *(f"{name} ended with: {line}" for name, line in ended if line)),
    ), results


def _look_into(
    broken: Varied, spec: Spec, folder: GateFolder, results: Results, watch: Watch, *, search: bool
) -> tuple[Diagnosis | None, Results]:
    """Look into one varied run. Without `search` it is only varied in all of it once more, which
    tells chance from dependence."""
    seed, names = broken.run.plan.arm.seed, broken.run.plan.varied
    first = next(run for run in results.runs if run.plan.name == broken.run.plan.second_of)
    bounds, tolerance, compared = spec.diagnosis, spec.determinism.tolerance, broken.comparison
    experiments = dict[frozenset[str], _Experiment]()
    steps, began, done = _steps(broken) if tolerance is None else None, monotonic(), 0
    took = max(time() - folder.began, 0.0)
    most = 0.0 if bounds is None else min(bounds.timeout, spec.robustness.search * took)
    if search and bounds is not None:
        watch.said(
            f"robustness: what does {broken.run.plan.name} depend on? The search takes "
            f"{duration(most)} at most"
        )

    def started(varied: frozenset[str], probe: Mapping[str, object], most: float) -> Results:
        nonlocal done
        late = bounds is None or done >= bounds.runs or monotonic() - began > most
        if late and done >= _FOR_THE_VERDICT:
            raise Exhausted
        done += 1
        watch.said(f"robustness: one run with {', '.join(sorted(varied)) or 'nothing'} varied")
        arm = replace(first.plan.arm, steps=steps or first.plan.arm.steps)
        plan = Plan(name=f"robustness-{seed}-{done}", arm=arm, varied=varied, probe=probe)
        if tolerance is not None:  # which asks how far the final weights are apart
            plan = replace(plan, keep_final=True, reference=first.traces)
        series = run_series(spec, folder, Watch(), (plan,), measure=False)
        if series.interrupted:
            raise _Interrupted(series.interrupted)
        return series

    def run(varied: frozenset[str]) -> Outcome:
        series = started(varied, {"factors": _WATCH}, most)
        comparison, ended = _compared(results, series, first, steps), series.runs[0]
        differs = not ended.good
        # a failure is explained by one that fails too
        if comparison is not None and (compared is not None or not varied):
            differs = differs or not alike(comparison, tolerance)
        experiments[varied] = _Experiment(
            differs=differs,
            uses=tuple(uses_of(labelled(ended.traces), _TOLD)),
            run=ended,
            comparison=comparison,
        )
        return experiments[varied]

    def lines(varied: frozenset[str]) -> list[Used]:
        """Of a short run. What decides is known by then, and a name without a line helps nobody:
        the time of the search is not asked."""
        series = started(varied, {"factors": {}, "lines": max(until, 0)}, inf)
        return [*uses_of(labelled(series.runs[0].traces), LINES)]

    def line_of(name: str) -> Used | None:
        """Return the line that a varied name reached: the first whose values differ where no use of
        it is seen; of those that read the clock, of which most only log, the one that decides if it
        alone is varied."""
        alone = frozenset({name})
        if not called(name):
            return first_difference(lines(frozenset()), lines(alone))
        told = differing(experiments[frozenset()].uses, experiments[alone].uses, name, until)
        readers = {use.site: use for use in reversed(told) if use.direct and name == "clock"}
        for site, use in reversed(readers.items()) if len(readers) > 1 else ():
            series = started(alone, {"factors": {**_WATCH, "vary_at": [site]}}, most)
            comparison = _compared(results, series, first, steps)
            if comparison is not None and not alike(comparison, tolerance):
                return use
        return None

    diverged = compared.first_divergence if compared is not None else None
    until = 10**9 if diverged is None else max(diverged.step, 0)
    where = (
        f"in how it ends ({broken.run.problem})"
        if compared is None or diverged is None
        else place_of(diverged, compared.steps)
    )
    found = None
    try:
        if search:
            found = diagnose(sorted(names, key=spec.robustness.vary.index), until, where, run)
            if found is not None and found.factor and not found.one_of:
                with suppress(Exhausted):
                    found = at_line(found, found.factor, line_of(found.factor))
        by_chance = found is None if search else not run(names).differs
    except _Interrupted as error:
        return None, replace(results, interrupted=str(error))
    except (Inconclusive, OSError) as error:
        return None, replace(results, interrupted=f"the series ended early: {error}")
    plain = experiments.get(frozenset())
    if plain is not None and plain.differs:
        return None, _by_chance(results, broken, plain.run, plain.comparison)
    if by_chance:  # a failure is one beside the run that is varied in the same and comes through
        proof = compared or compare_crashed(experiments[names].run, broken.run)
        return None, _by_chance(results, broken, broken.run, proof)
    if found is None:
        return None, results
    return replace(found, runs=done, seconds=round(monotonic() - began, 3)), results


class _Interrupted(Exception):
    """An experiment was ended: the text says by what."""


@dataclass(frozen=True, kw_only=True)
class _Experiment(Outcome):
    """With the run, and how it compares with the first of its seed; None where it ended badly and
    that is not the training's own doing."""

    run: Run
    comparison: Comparison | None


def _by_chance(results: Results, broken: Varied, run: Run, proof: Comparison | None) -> Results:
    """Return the results where `run`, compared in `proof`, shows that nothing which was varied
    explains the varied run. A run that ended badly is one of the gate's runs from here on, so that
    the report has its log."""
    seed = broken.run.plan.arm.seed
    runs = results.runs if run.good or run in results.runs else (*results.runs, run)
    comparisons = results.comparisons if proof is None else {**results.comparisons, seed: proof}
    second = (
        {**results.second, seed: run.plan.name}
        if run is broken.run and run.good
        else results.second
    )
    varied = {**results.varied, seed: replace(broken, by_chance=True)}
    return replace(results, runs=runs, comparisons=comparisons, second=second, varied=varied)


def told(found: Diagnosis | None) -> Finding | None:
    """What the check says of it."""
    if found is None:
        return None
    every = (found, *found.also)
    lines = dict.fromkeys(
        EvidenceLine(item.call, Location(item.file, item.line))
        for item in found.one_of or every
        if item.file
    )
    return missing(
        found.message, (*lines, *(text for item in every for text in item.evidence)), found.remedy
    )


def _steps(broken: Varied) -> int | None:
    """Return how many steps an experiment needs; None: all of them, and what the training leaves at
    its end."""
    compared = broken.comparison
    first = compared.first_divergence if compared is not None else None
    if (
        compared is None
        or first is None
        or first.kind == "artifact"
        or first.detail
        or first.step + 1 >= compared.steps
    ):
        return None
    return max(first.step, 0) + 1


def _compared(
    results: Results, series: Results, first: Run, steps: int | None
) -> Comparison | None:
    """Compare an experiment's run with the first, in the steps that both took."""
    run = series.runs[0]
    if not run.good:
        return compare_crashed(first, run)
    if steps is None:
        return results.compare_with(series, first.plan.arm.seed)
    a, b = ([_cut(trace, steps) for trace in item.traces] for item in (first, run))
    return compare_runs(a, b)


def _cut(trace: Trace, steps: int) -> Trace:
    return replace(before_step(trace, steps), steps=trace.steps[:steps])
