"""Finds what a training depends on that is repeatable but not robust: does the runs that the search
asks for, and compares each with the first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from repro_gate.checks.interface import EvidenceLine, Finding
from repro_gate.compare.model import Comparison
from repro_gate.compare.traces import compare_runs
from repro_gate.diagnosis.experiments import Exhausted, Experiments
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.diagnosis.robustness import (
    SURROUNDINGS,
    Outcome,
    at_line,
    called,
    conditions_of,
    diagnose,
    differing,
)
from repro_gate.diagnosis.suspects import differing_lines
from repro_gate.gate.diagnose import LINES, OnPair, diagnosis_of, uses_of
from repro_gate.gate.options import Options
from repro_gate.gate.prepare import gate_folder, prepare
from repro_gate.report.wording import place_of
from repro_gate.runs.crashes import compare_crashed
from repro_gate.runs.launch import Recording, RunRequest, RunResult
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, Results, Varied, compare_pair
from repro_gate.runs.series import do_runs, run
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Trace, Used

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
        if not item.run.good and (line := item.run.last_words)
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


def is_robust(results: Results, dependence: Diagnosis | None) -> bool | None:
    """Return whether the result is the same in any two shells of one user; None if no run was
    varied, or if it is unknown why one differs."""
    if results.varied and all(item.same for item in results.varied.values()):
        return True
    return None if dependence is None else not conditions_of(dependence)


def not_robust(
    dependence: Diagnosis | None, on_dependence: str | None
) -> Finding | None:
    """Return the finding of `random-state/robust` about a dependence. `on_dependence` is the key of
    the spec, which decides if two shells of one user can get different results."""
    if dependence is None:
        return None
    causes = (dependence, *dependence.also)
    lines = dict.fromkeys(
        EvidenceLine(item.call, Location(item.file, item.line))
        for item in dependence.one_of or causes
        if item.file
    )
    texts = (text for item in causes for text in item.evidence)
    kinds = {"warn": "notice", "fail": "fail"} if conditions_of(dependence) else {}
    kind = kinds.get(on_dependence or "", "missing")
    return Finding(kind, dependence.message, (*lines, *texts), dependence.remedy)


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
        request = broken.run.request
        bounds = None if brief else results.spec.diagnosis
        self.results = results
        self.broken = broken
        self.watch = watch
        self.first = results.by_name[request.second_of]
        self.until, self.steps, self.place = _scope(broken, results.spec)
        self.experiments = Experiments(
            self.experiment,
            bounds.runs if bounds else 0,
            seconds=bounds.timeout if bounds else 0.0,
            always=_FOR_THE_VERDICT,
        )
        if bounds:
            watch.said(f"robustness: what does {request.name} depend on?")

    def look_into(self) -> tuple[Diagnosis | None, Results]:
        """Return what the run depends on, with the line that reads it, and the results."""
        results = self.results
        broken = self.broken
        experiments = self.experiments
        varied = broken.run.request.varied
        names = sorted(varied, key=results.spec.robustness.vary.index)
        try:
            diagnosis = diagnose(names, self.until, self.place, experiments.result)
            if diagnosis and diagnosis.factor and not diagnosis.one_of:
                with suppress(Exhausted):
                    diagnosis = at_line(diagnosis, self.line_of(diagnosis.factor))
        except EARLY_ENDS as error:
            results.interrupt(error)
            return None, results
        plain = experiments.known[_NOTHING]
        if plain.differs:
            return None, _by_chance(results, broken, plain.run, plain.comparison)
        if diagnosis:
            seconds = round(experiments.elapsed, 3)
            return replace(diagnosis, runs=experiments.done, seconds=seconds), results
        # If the varied run failed, compare it with the run that varies the same and succeeded.
        again = experiments.known[varied].run
        proof = broken.comparison or compare_crashed(again, broken.run)
        return None, _by_chance(results, broken, broken.run, proof)

    def experiment(self, varied: frozenset[str]) -> _Experiment:
        """Do one run in which these are varied."""
        result = self.run(varied, factors=_WATCH)
        comparison = self.compare(result)
        # If the varied run failed, only another failure explains it, not another result.
        counts = comparison and (self.broken.comparison or not varied)
        return _Experiment(
            differs=not (result.good and (not counts or self.results.same(comparison))),
            uses=uses_of(result, _USES),
            run=result,
            comparison=comparison,
        )

    def run(self, varied: frozenset[str], **probe: object) -> RunResult:
        """Do one run in which these are varied, and the probe does this."""
        names = ", ".join(sorted(varied)) or "nothing"
        self.watch.said(f"robustness: one run with {names} varied")
        arm = self.first.arm
        results = self.results
        # The tolerance needs the distance of the final weights.
        final = results.spec.determinism.tolerance is not None
        request = RunRequest(
            name=f"robustness-{arm.seed}-{self.experiments.done}",
            arm=replace(arm, steps=self.steps or arm.steps),
            varied=varied,
            collect=self.steps is None,
            probe=probe,
            recording=Recording(final=final),
            reference=self.first.traces if final else (),
        )
        return run(results.spec, results.folder, request)

    def compare(self, result: RunResult) -> Comparison | None:
        """Compare an experiment's run with the first run, in the steps that both made."""
        if not result.good:
            return compare_crashed(self.first, result)
        if self.steps is None:
            return compare_pair(self.first, result, self.results.reader)[0]
        first, second = (_cut_off(run, self.steps) for run in (self.first, result))
        return compare_runs(first, second)

    def line_of(self, name: str) -> Used | None:
        """Return the line that reads a varied name. If its uses cannot be watched, this is the
        first line whose values differ. Many lines read the clock only to log it, so for the clock
        it is the line that decides when it alone is varied."""
        alone = frozenset({name})
        experiments = self.experiments
        if not called(name):
            # The cause is known, and without its line it helps nobody: ignore the time limit.
            experiments.seconds = inf
            lines = []
            for varied in (_NOTHING, alone):
                experiments.spend()
                lines.append(
                    uses_of(self.run(varied, factors={}, lines=self.until), LINES)
                )
            return next(differing_lines(*lines), None)
        if name != "clock" or alone not in experiments.known:
            return None
        plain, moved = experiments.known[_NOTHING], experiments.known[alone]
        uses = differing(plain.uses, moved.uses, name, self.until)
        readers = [*{use.site: use for use in reversed(uses) if use.direct}.values()]
        for use in reversed(readers) if len(readers) > 1 else ():
            experiments.spend()
            watch = {**_WATCH, "vary_at": [use.site]}
            comparison = self.compare(self.run(alone, factors=watch))
            if comparison and not self.results.same(comparison):
                return use
        return None


def _scope(broken: Varied, spec: Spec) -> tuple[int, int | None, str]:
    """Return the step at which the varied run diverged; the steps that an experiment needs, None
    for all of them with the state and artifacts at the end; and the place in words."""
    compared = broken.comparison
    if not compared or not (diverged := compared.first_divergence):
        return 10**9, None, f"in how it ends ({broken.run.problem})"
    until = max(diverged.step, 0)
    at_end = (
        diverged.kind == "artifact" or diverged.detail or spec.determinism.tolerance
    )
    is_early = not at_end and diverged.step + 1 < compared.steps
    return until, until + 1 if is_early else None, place_of(diverged, compared.steps)


def _by_chance(
    results: Results, broken: Varied, result: RunResult, proof: Comparison | None
) -> Results:
    """Return the results after `result`, compared in `proof`, has shown that the varied run differs
    by chance. A run that ended badly is added to the gate's runs, so that the report has its
    log."""
    seed = result.arm.seed
    added = () if result.good or result in results.runs else (result,)
    name = {seed: result.name} if result is broken.run and result.good else {}
    return replace(
        results,
        runs=(*results.runs, *added),
        comparisons=results.comparisons | ({seed: proof} if proof else {}),
        second=results.second | name,
        varied=results.varied | {seed: replace(broken, by_chance=True)},
    )


def _cut_off(run: RunResult, steps: int) -> list[Trace]:
    """Return the run's traces, cut off after so many steps."""
    return [
        replace(
            trace,
            blocks=[block for block in trace.blocks if block.step < steps],
            steps=trace.steps[:steps],
        )
        for trace in run.traces
    ]
