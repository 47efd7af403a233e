"""Finds what a training depends on that is repeatable but not robust: does the runs that the search
asks for, and compares each with the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from repro_gate.checks.interface import EvidenceLine, Finding, missing
from repro_gate.compare.model import Comparison
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
from repro_gate.gate.diagnose import LINES, OnPair, diagnosis_of, uses_of
from repro_gate.gate.options import Options
from repro_gate.gate.prepare import gate_folder, prepare
from repro_gate.report.wording import place_of
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, Results, Varied, compare_pair
from repro_gate.runs.series import do_runs, run
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Used

# Two experiments are always done: one varies nothing, one varies everything again.
_FOR_THE_VERDICT = 2
_WATCH = {"watch": True, "surroundings": True}
_USES = {called(name) for name in SURROUNDINGS}  # the names of those uses in a trace
_NOTHING = frozenset[str]()


def robustness_of(results: Results, watch: Watch) -> tuple[Diagnosis | None, Results]:
    """Return a diagnosis of which varied thing a run depends on; None unless the plain runs of a
    seed agree and its varied run differs. Return the results too: they change if a varied run
    differed or failed by chance, since then the training is not repeatable."""
    diagnosis = None
    for broken in results.not_robust:
        if not results.interrupted:
            search = _Search(results, broken, watch, brief=diagnosis is not None)
            another, results = search.look_into()
            diagnosis = diagnosis or another
    if diagnosis is None:
        return None, results
    ends = tuple(
        f"{item.run.name} ended with: {line}"
        for item in results.not_robust
        if not item.run.good and (line := item.run.raised or item.run.ended.last_line)
    )
    return replace(diagnosis, evidence=(*diagnosis.evidence, *ends)), results


def diagnose_alone(
    written: Spec,
    options: Options,
    watch: Watch,
    on_results: Callable[[Results], None],
    on_pair: OnPair,
) -> tuple[Results, Diagnosis | None]:
    """Do only the deterministic runs, and call `on_results` with them. If they diverge, return why.
    Data is not verified, and there is no verdict."""
    job = prepare(written, options, watch)
    with gate_folder(job) as folder:
        requests = gate_runs(job.spec)
        deterministic = [item for item in requests if item.arm.name == "deterministic"]
        results = do_runs(job.spec, folder, watch, deterministic)
        dependence, results = robustness_of(results, watch)
        on_results(results)
        return results, diagnosis_of(results, watch, on_pair) or dependence


def not_robust(dependence: Diagnosis | None) -> Finding | None:
    """Return the finding of `random-state/robust` about a dependence."""
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
    """An outcome with its run and the comparison with the seed's first run. The comparison is None
    if the run ended badly for a reason outside the training."""

    run: RunResult
    comparison: Comparison | None


class _Search:
    """The experiments about one varied run. A `brief` search only decides whether it differs by
    chance."""

    def __init__(
        self, results: Results, broken: Varied, watch: Watch, *, brief: bool
    ) -> None:
        spec = results.spec
        request = broken.run.request
        self.results = results
        self.broken = broken
        self.watch = watch
        self.varied = request.varied
        self.began = monotonic()
        self.done = 0
        self.experiments = dict[frozenset[str], _Experiment]()
        self.tolerance = spec.determinism.tolerance
        self.first = results.by_name[request.second_of]
        self.until = 10**9  # the step at which the varied run diverged
        # steps that an experiment needs; None: all, and the state and artifacts at the end
        self.steps = None
        self.place = f"in how it ends ({broken.run.problem})"
        compared = broken.comparison
        if compared and (diverged := compared.first_divergence):
            self.until = max(diverged.step, 0)
            self.place = place_of(diverged, compared.steps)
            at_end = diverged.kind == "artifact" or diverged.detail or self.tolerance
            if not at_end and diverged.step + 1 < compared.steps:
                self.steps = self.until + 1
        bounds = None if brief else spec.diagnosis
        self.most = bounds.runs if bounds else 0
        self.seconds = bounds.timeout if bounds else 0.0
        if bounds:
            watch.said(f"robustness: what does {request.name} depend on?")

    def look_into(self) -> tuple[Diagnosis | None, Results]:
        """Return what the run depends on, with the line that reads it, and the results."""
        results = self.results
        broken = self.broken.run
        names = sorted(self.varied, key=results.spec.robustness.vary.index)
        try:
            diagnosis = diagnose(names, self.until, self.place, self.experiment)
            if diagnosis and diagnosis.factor and not diagnosis.one_of:
                with suppress(Exhausted):
                    line = self.line_of(diagnosis.factor)
                    diagnosis = at_line(diagnosis, diagnosis.factor, line)
        except EARLY_ENDS as error:
            results.interrupt(error)
            return None, results
        plain = self.experiments[_NOTHING]
        if plain.differs:
            return None, self.by_chance(plain.run, plain.comparison)
        if diagnosis:
            seconds = round(monotonic() - self.began, 3)
            return replace(diagnosis, runs=self.done, seconds=seconds), results
        # If the varied run failed, compare it with the run that varies the same and succeeded.
        again = self.experiments[self.varied].run
        proof = self.broken.comparison or compare_crashed(again, broken)
        return None, self.by_chance(broken, proof)

    def experiment(self, varied: frozenset[str]) -> Outcome:
        """Do one run in which these are varied."""
        result = self.run(varied, {"factors": _WATCH}, self.seconds)
        comparison = self.compare(result)
        differs = not result.good
        # If the varied run failed, only another failure explains it, not another result.
        if comparison and (self.broken.comparison or not varied):
            differs = differs or not self.results.same(comparison)
        self.experiments[varied] = _Experiment(
            differs=differs,
            uses=uses_of(result, _USES),
            run=result,
            comparison=comparison,
        )
        return self.experiments[varied]

    def run(
        self, varied: frozenset[str], probe: Mapping[str, object], seconds: float
    ) -> RunResult:
        """Do one run. Raises Exhausted if the runs or the time are used up."""
        late = self.done >= self.most or monotonic() - self.began > seconds
        if late and self.done >= _FOR_THE_VERDICT:
            raise Exhausted
        self.done += 1
        names = ", ".join(sorted(varied)) or "nothing"
        self.watch.said(f"robustness: one run with {names} varied")
        arm = self.first.arm
        results = self.results
        # The tolerance needs the distance of the final weights.
        final = self.tolerance is not None
        request = RunRequest(
            name=f"robustness-{arm.seed}-{self.done}",
            arm=replace(arm, steps=self.steps or arm.steps),
            varied=varied,
            collect=self.steps is None,
            probe=probe,
            keep_final=final,
            reference=self.first.traces if final else (),
        )
        return run(results.spec, results.folder, request)

    def compare(self, result: RunResult) -> Comparison | None:
        """Compare an experiment's run with the first run, in the steps that both made."""
        first = self.first
        steps = self.steps
        if not result.good:
            return compare_crashed(first, result)
        if steps is not None:
            first, result = (_cut_off(item, steps) for item in (first, result))
        return compare_pair(first, result, self.results.reader)[0]

    def line_of(self, name: str) -> Used | None:
        """Return the line that reads a varied name. If its uses cannot be watched, this is the
        first line whose values differ. Many lines read the clock only to log it, so for the clock
        it is the line that decides when it alone is varied."""
        alone = frozenset({name})
        if not called(name):
            # The cause is known, and without its line it helps nobody: ignore the time limit.
            probe = {"factors": {}, "lines": self.until}
            first, second = (self.run(item, probe, inf) for item in (_NOTHING, alone))
            return first_difference(uses_of(first, LINES), uses_of(second, LINES))
        varied = self.experiments.get(alone)
        if name != "clock" or varied is None:
            return None
        plain = self.experiments[_NOTHING]
        uses = differing(plain.uses, varied.uses, name, self.until)
        readers = [*{use.site: use for use in reversed(uses) if use.direct}.values()]
        for use in reversed(readers) if len(readers) > 1 else ():
            watch = {"factors": {**_WATCH, "vary_at": [use.site]}}
            comparison = self.compare(self.run(alone, watch, self.seconds))
            if comparison and not self.results.same(comparison):
                return use
        return None

    def by_chance(self, result: RunResult, proof: Comparison | None) -> Results:
        """Return the results after `result`, compared in `proof`, has shown that the varied run
        differs by chance. A run that ended badly is added to the gate's runs, so that the report
        has its log."""
        results = self.results
        broken = self.broken
        seed = self.first.arm.seed
        added = () if result.good or result in results.runs else (result,)
        name = {seed: result.name} if result is broken.run and result.good else {}
        return replace(
            results,
            runs=(*results.runs, *added),
            comparisons=results.comparisons | ({seed: proof} if proof else {}),
            second=results.second | name,
            varied=results.varied | {seed: replace(broken, by_chance=True)},
        )


def _cut_off(run: RunResult, steps: int) -> RunResult:
    """Return the run cut off after so many steps, without artifacts."""
    traces = tuple(
        replace(
            trace,
            blocks=[block for block in trace.blocks if block.step < steps],
            steps=trace.steps[:steps],
        )
        for trace in run.traces
    )
    return replace(run, traces=traces, artifacts={})
