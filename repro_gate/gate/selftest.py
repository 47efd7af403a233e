"""`repro-gate selftest`: puts faults into this training on this machine, and shows whether the gate
finds them.

A clean pair runs first and must be identical. Then each fault gets one more run, which the gate's
own comparison, checks and verdict compare with the first. A fault counts as caught only if the gate
finds it at the place where it was put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Literal

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks.interface import CheckResult, Evidence
from repro_gate.checks.random_state import flags_effective, generators_equal
from repro_gate.compare.model import Comparison, Divergence
from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.gate.faults import FAULTS, Place, checkpoint_of, damaged, place_of_fault
from repro_gate.gate.options import Options
from repro_gate.gate.prepare import gate_folder, prepare
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.progress import sentence
from repro_gate.runs import arms
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.reading import pairs
from repro_gate.runs.results import INTERRUPTED, Results, compare_pair
from repro_gate.runs.series import do_runs, run
from repro_gate.runs.workspaces import GateFolder
from repro_gate.spec.model import Spec

STEPS = 6  # of a run, unless the command line says otherwise
_RACES = 4  # runs with a racing operator: two of them may agree by luck
_NOTE = "fault"  # id of the note in which the probe describes the fault
Outcome = Literal["caught", "not caught", "not applicable", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault: where it was `put` in, where the gate `found` it, and the outcome. `why` explains
    the outcome."""

    fault: str = ""
    outcome: Outcome = "inconclusive"
    why: str = ""
    put: Place | None = None
    found: Divergence | None = None
    reasons: tuple[str, ...] = ()  # ids of what failed, or warned
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """The result of a self-test: one row for each requested fault. Each run made `steps` optimizer
    steps with `seed`."""

    seed: int
    steps: int
    rows: tuple[Row, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """Return 0 if every applicable fault was caught, the weight among them; 1 if one was not
        caught; 3 if one could not be tried, or none applies."""
        outcomes = [row.outcome for row in self.rows]
        if "not caught" in outcomes:
            return 1
        by_fault = {row.fault: row.outcome for row in self.rows}
        is_shown = "caught" in outcomes and "inconclusive" not in outcomes
        return 0 if is_shown and by_fault.get("weight", "caught") == "caught" else 3


def selftest(
    written: Spec,
    options: Options,
    watch: Watch,
    faults: Sequence[str] = (),
    steps: int | None = None,
) -> SelfTest:
    """Try these faults, or all, in runs of `steps` steps. Raises Inconclusive if the clean runs
    differ."""
    began = monotonic()
    job = prepare(written, options, watch)
    with gate_folder(job) as folder:
        whole = replace(
            job.spec, determinism=replace(job.spec.determinism, tolerance=None)
        )
        steps = steps or min(whole.train.steps or STEPS, STEPS)
        spec = replace(whole, train=replace(whole.train, steps=steps))
        clean = _clean(spec, folder, watch)
        trial = _Trial(whole, watch, clean)
        return SelfTest(
            seed=spec.seed,
            steps=clean.runs[0].steps,
            rows=tuple(
                trial.row(fault) for fault in FAULTS if fault in (faults or FAULTS)
            ),
            seconds=round(monotonic() - began, 3),
        )


def judge(put: Place, comparison: Comparison, clean: Results, faulty: RunResult) -> Row:
    """Compare a clean with a faulty run. The fault is caught if the gate names it at the place
    where it was put in."""
    first = comparison.first_divergence
    pair = (clean.runs[0], faulty)
    evidence = Evidence(
        spec=clean.spec,
        checkout=Checkout(root=clean.spec.path.parent),
        runs=pair,
        pair=pair,
        comparison=comparison,
    )
    flags = flags_effective(evidence)
    generators = generators_equal(evidence)
    # Judge this pair alone: other problems of the clean runs, such as a missing file, do not count.
    results = Results(
        spec=clean.spec,
        folder=clean.folder,
        reader=clean.reader,
        comparisons={clean.spec.seed: comparison},
    )
    verdict, reasons, _ = decide(
        Findings(results=results, checklist=(flags, generators))
    )
    ids = tuple(item.id for item in reasons) if verdict == "fail" else ()
    row = Row(outcome="not caught", put=put, found=first, reasons=ids)
    if put.kind == "flag":
        line = f"{put.name} is False from step {put.step} on"
        return _by_check(replace(row, found=None), flags, line)
    if put.kind == "rng" and first is None:
        name = put.name if put.process == "main" else f"{put.process}: {put.name}"
        row = replace(
            row, why="a warning: no recorded number depends on this generator"
        )
        return _by_check(row, generators, f"{name}: differs from step {put.step} on")
    if first is None:
        return replace(row, why="the gate finds no difference")
    if "determinism/diverged" in ids and _there(put, first):
        return replace(row, outcome="caught")
    return replace(row, why="the gate finds a difference, but in another place")


def _there(put: Place, first: Divergence) -> bool:
    """Return whether runs diverge where a fault was put in."""
    name = first.name.partition(": ")[0] if put.kind == "artifact" else first.name
    place = (put.step, put.kind, put.name) == (first.step, first.kind, name)
    return place and (put.kind == "artifact" or put.process == first.process)


def _by_check(row: Row, result: CheckResult, line: str) -> Row:
    """Return the row, as caught if the check fails or warns and its evidence has this line."""
    for item in result.evidence if result.status in ("fail", "warn") else ():
        if item.text.startswith(line):
            why = "; ".join(filter(None, (str(item), row.why)))
            return replace(row, outcome="caught", reasons=(result.id,), why=why)
    return replace(row, why=f"{result.id} says: {result.message}")


def _clean(spec: Spec, folder: GateFolder, watch: Watch) -> Results:
    """Return the clean pair. Raises Inconclusive if it cannot be compared or diverges, since then
    no fault could be recognized."""
    arm = arms.deterministic(spec.seed, arms.allowed(spec), spec.train.steps)
    first = RunRequest(name="clean-1", arm=arm, collect=True)
    second = replace(first, name="clean-2", second_of=first.name)
    clean = do_runs(spec, folder, watch, (first, second))
    if clean.interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    comparison = clean.comparison
    why = clean.interrupted or "the clean runs could not be compared"
    remedy = clean.interrupted_by[1]
    bad = next((item for item in clean.runs if not item.good), None)
    if comparison and comparison.first_divergence:
        place = sentence(comparison.first_divergence)
        why = f"two clean runs diverge {place}, so no fault could be recognized"
        remedy = "make the gate pass first: `repro-gate run --only diagnosis` says why they diverge"
    elif bad is not None:
        why = f"the clean runs: {for_terminal(bad.problem, 1_000)}"
        remedy = bad.remedy
    elif comparison and not clean.interrupted:
        return clean
    raise Inconclusive(why, remedy=remedy)


@dataclass(frozen=True)
class _Trial:
    """The runs of a self-test: `whole` is the unchanged spec, `clean` the pair with fewer steps."""

    whole: Spec
    watch: Watch
    clean: Results

    def row(self, fault: str) -> Row:
        """Put one fault in, and judge whether the gate finds it."""
        began = monotonic()
        self.watch.said(f"{fault}: {FAULTS[fault]}")
        row = self._checkpoint() if fault == "checkpoint" else self._by_probe(fault)
        self.watch.said(
            f"  {row.outcome}{': ' * bool(row.why)}{for_terminal(row.why, 300)}"
        )
        return replace(row, fault=fault, seconds=round(monotonic() - began, 3))

    def _by_probe(self, fault: str) -> Row:
        """Compare a faulty run with the clean one. For the race, compare two racing runs with
        different results: the clean run lacks the racing operator."""
        clean = self.clean.runs[0]
        put = place_of_fault(fault, clean)
        if isinstance(put, str):
            return Row(outcome="not applicable", why=put)
        first = None if fault == "race" else clean
        for number in range(_RACES):
            probe = {"fault": put.config(fault)}
            faulty = self._run(self.clean.spec, f"selftest-{fault}-{number + 1}", probe)
            if not faulty.good:
                return _useless(faulty, put)
            if not _notes(faulty):
                return Row(why="the probe could not put the fault in", put=put)
            if first is None:
                first = faulty
            elif _notes(first) != _notes(faulty):
                return self._judged(put, first, faulty)
        why = f"the threads gave the same result in all {_RACES} runs, so nothing is shown"
        return Row(why=why, put=put)

    def _checkpoint(self) -> Row:
        """Damage an artifact after its run. If the short runs write none, do two full runs."""
        spec = self.clean.spec
        clean = self.clean.runs[0]
        name = checkpoint_of(clean)
        if not name and spec.capture.artifacts and spec.train != self.whole.train:
            self.watch.said("  the short runs write no artifact: two full runs follow")
            spec = self.whole
            clean = self._run(spec, "clean-whole", {})
            if not clean.good:
                return _useless(clean)
            name = checkpoint_of(clean)
        if name is None:
            why = "no run wrote a file that matches capture.artifacts"
            return Row(outcome="not applicable", why=why)
        put = Place(step=clean.steps - 1, kind="artifact", name=name)
        faulty = self._run(spec, "selftest-checkpoint", {})
        if not faulty.good:
            return _useless(faulty, put)
        for pair in pairs(clean.artifacts, faulty.artifacts):
            if pair.first == name:
                put = replace(put, name=pair.name)
                name = pair.second
        try:
            return self._judged(put, clean, damaged(faulty, name))
        except (OSError, ValueError) as error:
            return Row(why=f"{name} could not be changed: {error}", put=put)

    def _run(self, spec: Spec, name: str, probe: Mapping[str, object]) -> RunResult:
        first = self.clean.runs[0].request
        arm = replace(first.arm, steps=spec.train.steps)
        request = replace(first, name=name, arm=arm, probe=probe)
        return run(spec, self.clean.folder, request)

    def _judged(self, put: Place, clean: RunResult, faulty: RunResult) -> Row:
        comparison, _ = compare_pair(clean, faulty, self.clean.reader)
        return judge(put, comparison, self.clean, faulty)


def _useless(faulty: RunResult, put: Place | None = None) -> Row:
    """Return the row for a run that ended badly, which proves nothing about the gate."""
    return Row(why=f"its run {faulty.outcome}: {faulty.problem}", put=put)


def _notes(faulty: RunResult) -> list[str]:
    """Return the probe's notes about the fault that it put in."""
    notes = (note for trace in faulty.traces for note in trace.notes)
    return [message for identifier, message in notes if identifier == _NOTE]
