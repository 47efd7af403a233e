"""What a training that is repeatable but not robust depends on: does the runs that the search asks
for, each compared with the first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

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
from repro_gate.gate.diagnose import LINES, uses_of
from repro_gate.report.wording import place_of
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.ending import last_line
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results, Varied, before_step
from repro_gate.runs.series import run_series
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Used

_FOR_THE_VERDICT = 2  # experiments that are always done: varied in nothing, and in all of it again
_WATCH = {"watch": True, "surroundings": True}
_USES = {called(name) for name in SURROUNDINGS}  # the names of those uses in a trace
_NOTHING = frozenset[str]()


def robustness_of(results: Results, watch: Watch) -> tuple[Diagnosis | None, Results]:
    """Return which of what was varied a run depends on, if the plain runs of its seed are the same
    and the varied one is not; None if there is no such run. And the results: where a varied run
    differs or fails by chance, its training is not repeatable after all."""
    diagnosis = None
    for broken in results.not_robust:
        if not results.interrupted:
            search = _Search(results, broken, watch, brief=diagnosis is not None)
            another, results = search.look_into()
            diagnosis = diagnosis or another
    if diagnosis is None:
        return None, results
    ends = tuple(
        f"{item.run.request.name} ended with: {line}"
        for item in results.not_robust
        if not item.run.good and (line := last_line(item.run.ended.tail))
    )
    return replace(diagnosis, evidence=(*diagnosis.evidence, *ends)), results


def not_robust(dependence: Diagnosis | None) -> Finding | None:
    """Return what the check says of a dependence."""
    if dependence is None:
        return None
    causes = (dependence, *dependence.also)
    lines = dict.fromkeys(
        EvidenceLine(item.call, Location(item.file, item.line))
        for item in dependence.one_of or causes
        if item.file
    )
    texts = (text for item in causes for text in item.evidence)
    return missing(dependence.message, (*lines, *texts), dependence.remedy)


@dataclass(frozen=True, kw_only=True)
class _Experiment(Outcome):
    """With the run, and how it compares with the first of its seed; None if it ended badly and that
    is not the training's own doing."""

    run: RunResult
    comparison: Comparison | None


class _Interrupted(Exception):
    """An experiment's series was interrupted, and why."""


class _Search:
    """The experiments about one varied run. A `brief` one only tells chance from dependence."""

    def __init__(
        self,
        results: Results,
        broken: Varied,
        watch: Watch,
        *,
        brief: bool,
    ) -> None:
        spec, compared, plan = results.spec, broken.comparison, broken.run.request
        self.results, self.broken, self.watch, self.varied = results, broken, watch, plan.varied
        self.began, self.done = monotonic(), 0
        self.experiments = dict[frozenset[str], _Experiment]()
        self.tolerance = spec.determinism.tolerance
        self.first = next(run for run in results.runs if run.request.name == plan.second_of)
        self.until = 10**9  # the step at which the varied run diverged
        # that an experiment needs; None: all, and what the training leaves at its end
        self.steps = None
        self.place = f"in how it ends ({broken.run.problem})"
        diverged = compared and compared.first_divergence
        if compared and diverged:
            self.until = max(diverged.step, 0)
            self.place = place_of(diverged, compared.steps)
            at_end = diverged.kind == "artifact" or diverged.detail or self.tolerance
            if not at_end and diverged.step + 1 < compared.steps:
                self.steps = self.until + 1
        self.most = self.seconds = 0.0  # experiments, and their time
        if spec.diagnosis is not None and not brief:
            self.most, self.seconds = spec.diagnosis.runs, spec.diagnosis.timeout
            watch.said(f"robustness: what does {plan.name} depend on?")

    def look_into(self) -> tuple[Diagnosis | None, Results]:
        """Return what the run depends on, with the line that it reached, and the results."""
        results, run = self.results, self.broken.run
        names = sorted(self.varied, key=results.spec.robustness.vary.index)
        try:
            diagnosis = diagnose(names, self.until, self.place, self.experiment)
            if diagnosis and diagnosis.factor and not diagnosis.one_of:
                with suppress(Exhausted):
                    line = self.line_of(diagnosis.factor)
                    diagnosis = at_line(diagnosis, diagnosis.factor, line)
        except _Interrupted as error:
            return None, replace(results, interrupted=str(error))
        except (Inconclusive, OSError) as error:
            return None, replace(results, interrupted=f"the series ended early: {error}")
        plain = self.experiments[_NOTHING]
        if plain.differs:
            return None, self.by_chance(plain.run, plain.comparison)
        if diagnosis:
            seconds = round(monotonic() - self.began, 3)
            return replace(diagnosis, runs=self.done, seconds=seconds), results
        # a failure is one next to the run that is varied in the same and comes through
        again = self.experiments[self.varied].run
        return None, self.by_chance(run, self.broken.comparison or compare_crashed(again, run))

    def experiment(self, varied: frozenset[str]) -> Outcome:
        """Do one run that is varied in these."""
        series = self.start(varied, {"factors": _WATCH}, self.seconds)
        comparison, run = self.compare(series), series.runs[0]
        differs = not run.good
        # a failure is explained by one that fails too
        if comparison and (self.broken.comparison or not varied):
            differs = differs or not alike(comparison, self.tolerance)
        self.experiments[varied] = _Experiment(
            differs=differs,
            uses=uses_of(run, _USES),
            run=run,
            comparison=comparison,
        )
        return self.experiments[varied]

    def start(
        self,
        varied: frozenset[str],
        probe: Mapping[str, object],
        seconds: float,
    ) -> Results:
        """Do one run. Raises Exhausted if no more may be done."""
        late = self.done >= self.most or monotonic() - self.began > seconds
        if late and self.done >= _FOR_THE_VERDICT:
            raise Exhausted
        self.done += 1
        self.watch.said(f"robustness: one run with {', '.join(sorted(varied)) or 'nothing'} varied")
        arm, results = self.first.request.arm, self.results
        final = self.tolerance is not None  # which asks how far the final weights are apart
        plan = RunRequest(
            name=f"robustness-{arm.seed}-{self.done}",
            arm=replace(arm, steps=self.steps or arm.steps),
            varied=varied,
            probe=probe,
            keep_final=final,
            reference=self.first.traces if final else (),
        )
        series = run_series(
            results.spec,
            results.folder,
            Watch(),
            (plan,),
            measure=False,
        )
        if series.interrupted:
            raise _Interrupted(series.interrupted)
        return series

    def compare(self, series: Results) -> Comparison | None:
        """Compare an experiment's run with the first, in the steps that both took."""
        first, run, steps = self.first, series.runs[0], self.steps
        if not run.good:
            return compare_crashed(first, run)
        if steps is None:
            return self.results.compare_with(series, first.request.arm.seed)
        a, b = (
            [replace(before_step(trace, steps), steps=trace.steps[:steps]) for trace in item.traces]
            for item in (first, run)
        )
        return compare_runs(a, b)

    def line_of(self, name: str) -> Used | None:
        """Return the line that a varied name reached: the first whose values differ if no use of it
        is seen; of those that read the clock, of which most only log, the one that decides if it
        alone is varied."""
        alone = frozenset({name})
        plain, varied = (self.experiments.get(item) for item in (_NOTHING, alone))
        if not called(name):
            # what decides is known, and a name without a line helps nobody: take the time
            probe = {"factors": {}, "lines": self.until}
            first, second = (self.start(item, probe, inf) for item in (_NOTHING, alone))
            return first_difference(
                uses_of(first.runs[0], LINES),
                uses_of(second.runs[0], LINES),
            )
        if name != "clock" or not plain or not varied:
            return None
        uses = differing(plain.uses, varied.uses, name, self.until)
        readers = [*{use.site: use for use in reversed(uses) if use.direct}.values()]
        for use in reversed(readers) if len(readers) > 1 else ():
            watch = {"factors": {**_WATCH, "vary_at": [use.site]}}
            comparison = self.compare(self.start(alone, watch, self.seconds))
            if comparison and not alike(comparison, self.tolerance):
                return use
        return None

    def by_chance(self, run: RunResult, proof: Comparison | None) -> Results:
        """Return the results where `run`, compared in `proof`, shows that nothing which was varied
        explains the varied run. A run that ended badly is one of the gate's runs from here on, so
        that the report has its log."""
        results, broken, seed = self.results, self.broken, self.first.request.arm.seed
        return replace(
            results,
            runs=results.runs if run.good or run in results.runs else (*results.runs, run),
            comparisons=results.comparisons | ({seed: proof} if proof else {}),
            second=results.second
            | ({seed: run.request.name} if run is broken.run and run.good else {}),
            varied=results.varied | {seed: replace(broken, by_chance=True)},
        )
