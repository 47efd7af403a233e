"""What a training that is repeatable but not robust depends on: does the runs that the search asks
for, each compared with the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, time

from repro_gate.checks.interface import NotRobust
from repro_gate.compare.model import Comparison
from repro_gate.compare.tolerance import alike
from repro_gate.compare.traces import compare_runs
from repro_gate.diagnosis.model import Diagnosis, Line, Use
from repro_gate.diagnosis.robustness import SURROUNDINGS, Outcome, at_line, diagnose, differing
from repro_gate.diagnosis.search import Exhausted
from repro_gate.diagnosis.suspects import first_difference
from repro_gate.errors import Inconclusive
from repro_gate.factors import Site
from repro_gate.gate.diagnose import labelled, lines_of, uses_of
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
from repro_gate.trace import notebook
from repro_gate.trace.model import Trace

_FOR_THE_VERDICT = 2  # experiments that are always done: varied in nothing, and in all of it again
_WATCH = {"watch": True, "surroundings": True}
_TOLD = {item.uses for item in SURROUNDINGS.values()}  # the names of those uses in a trace


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
    seed, first = (
        broken.run.plan.arm.seed,
        next(run for run in results.runs if run.plan.name == broken.run.plan.second_of),
    )
    bounds, names = spec.diagnosis, broken.run.plan.varied
    tolerance, began, done, experiments = (
        spec.determinism.tolerance,
        monotonic(),
        0,
        dict[frozenset[str], _Experiment](),
    )
    steps, compared = _steps(broken) if tolerance is None else None, broken.comparison
    took = (
        time() - folder.began
        if folder.began is not None
        else sum(run.ended.seconds for run in results.runs)
    )
    most = 0.0 if bounds is None else min(bounds.timeout, spec.robustness.search * max(took, 0.0))
    if search and bounds is not None:
        watch.said(
            f"robustness: what does {broken.run.plan.name} depend on? The search takes "
            f"{duration(most)} at most"
        )

    def started(
        varied: frozenset[str], probe: Mapping[str, object], *, names_line: bool = False
    ) -> tuple[Results, Run]:
        nonlocal done
        late = (
            bounds is None or done >= bounds.runs or (monotonic() - began > most and not names_line)
        )
        if late and done >= _FOR_THE_VERDICT:
            raise Exhausted
        done += 1
        watch.said(f"robustness: one run with {', '.join(sorted(varied)) or 'nothing'} varied")
        arm = replace(first.plan.arm, steps=steps if steps is not None else first.plan.arm.steps)
        plan = Plan(name=f"robustness-{seed}-{done}", arm=arm, varied=varied, probe=probe)
        if tolerance is not None:  # which asks how far the final weights are apart
            plan = replace(plan, keep_final=True, reference=first.traces)
        series = run_series(spec, folder, Watch(), (plan,), measure=False)
        if series.interrupted:
            raise _Interrupted(series.interrupted)
        return series, series.runs[0]

    def run(varied: frozenset[str]) -> Outcome:
        series, done_run = started(varied, {"factors": _WATCH})
        comparison = _compared(results, series, first, steps)
        differs = not done_run.good
        # a failure is explained by one that fails too
        if comparison is not None and (compared is not None or not varied):
            differs = differs or not alike(comparison, tolerance)
        outcome = Outcome(differs, tuple(uses_of(list(labelled(done_run.traces)), _TOLD)))
        experiments[varied] = _Experiment(done_run, comparison, outcome)
        return outcome

    def record(varied: frozenset[str]) -> Run:
        """One of two short runs that name a line: what decides is known by then, and a name without
        a line helps nobody."""
        return started(varied, {"factors": {}, "lines": max(until, 0)}, names_line=True)[1]

    diverged = compared.first_divergence if compared is not None else None
    until = 10**9 if diverged is None else max(diverged.step, 0)
    where = (
        f"in how it ends ({broken.run.problem})"
        if compared is None or diverged is None
        else place_of(diverged, compared.steps)
    )
    try:
        if search:
            found = diagnose(sorted(names, key=spec.robustness.vary.index), until, where, run)
            by_chance = found is None
            if found is None or found.one_of:
                pass  # nothing, or not one thing: no line of it is looked for
            elif found.factor and not SURROUNDINGS[found.factor].uses:
                found = _with_line(found, found.factor, record)
            elif found.factor == "clock" and not found.also:
                before, clocks = (
                    experiments[key].outcome.uses
                    for key in (frozenset[str](), frozenset({"clock"}))
                )

                def differs(site: Site) -> bool:
                    series, _ = started(
                        frozenset({"clock"}), {"factors": {**_WATCH, "vary_at": [site]}}
                    )
                    comparison = _compared(results, series, first, steps)
                    return comparison is not None and not alike(comparison, tolerance)

                found = _with_reading(found, differing(before, clocks, "clock", until), differs)
        else:
            found, by_chance = None, not run(names).differs
    except _Interrupted as error:
        return None, replace(results, interrupted=str(error))
    except (Inconclusive, OSError) as error:
        return None, replace(results, interrupted=f"the series ended early: {error}")
    plain = experiments.get(frozenset())
    if plain is not None and plain.outcome.differs:
        return None, _by_chance(results, broken, plain.run, plain.comparison)
    if by_chance:  # a failure is one beside the run that is varied in the same and comes through
        proof = (
            compared
            if compared is not None
            else compare_crashed(experiments[names].run, broken.run)
        )
        return None, _by_chance(results, broken, broken.run, proof)
    if found is None:
        return None, results
    return replace(found, runs=done, seconds=round(monotonic() - began, 3)), results


def _with_line(found: Diagnosis, name: str, run: Callable[[frozenset[str]], Run]) -> Diagnosis:
    """Return what was found with its line, by two more runs whose lines are recorded, one of them
    varied in `name` alone."""
    with suppress(Exhausted):
        plain, varied = (
            list(lines_of(list(labelled(run(frozenset(names)).traces)))) for names in ((), (name,))
        )
        return at_line(found, name, first_difference(plain, varied))
    return found


def _with_reading(
    found: Diagnosis, uses: Sequence[Use], differs: Callable[[Site], bool]
) -> Diagnosis:
    """Return what was found with the line whose reading of the clock decides, by a run for each
    with that line alone varied: most only log."""
    lines = {
        use.site: Line(use.process, use.step, use.site, "", use.call)
        for use in reversed(uses)
        if use.direct
    }
    with suppress(Exhausted):
        for site in list(lines)[::-1] if len(lines) > 1 else ():
            if differs(site):
                return at_line(found, "clock", lines[site])
    return found


class _Interrupted(Exception):
    """An experiment was ended: the text says by what."""


@dataclass(frozen=True)
class _Experiment:
    """A run, and how it compares with the first of its seed; None where it ended badly and that is
    not the training's own doing."""

    run: Run
    comparison: Comparison | None
    outcome: Outcome


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


def told(found: Diagnosis | None) -> NotRobust | None:
    """What the check says of it."""
    if found is None:
        return None
    every = (found, *found.also)
    lines = dict.fromkeys(
        f"{notebook.place(item.file, item.line)}: {item.call}"
        for item in found.one_of or every
        if item.file
    )
    return NotRobust(
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
