"""`repro-gate selftest`: whether the gate, on this machine and with this training, finds a fault
that is put in on purpose.

A clean pair first, which must be identical. Then one more run for each fault, compared with the
first by the gate's own comparison, checks and verdict. A fault is caught where it was put in, or it
is not caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Literal

from repro_gate.checks.interface import CheckResult, Evidence
from repro_gate.checks.random_state import flags_effective, generators_equal
from repro_gate.compare.model import Comparison, Divergence
from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.gate.faults import FAULTS, Place, checkpoint_of, flip_in_file, place_of_fault
from repro_gate.gate.options import Options
from repro_gate.gate.run import prepared
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.model import SeedResult
from repro_gate.report.progress import sentence
from repro_gate.runs import arms
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import INTERRUPTED, Results, last_step
from repro_gate.runs.series import run_series
from repro_gate.sandbox.identity import as_training_user
from repro_gate.spec.model import Spec

STEPS = 6  # of a run, unless the command line says otherwise
_RACES = 4  # runs with a racing operator, which may give the same result twice
_NOTE = "fault"  # id of the probe's note that says what it did
Outcome = Literal["caught", "not caught", "not applicable", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault: where it was `put`, how the gate found it, and whether that is right. `why` says
    what a person should know."""

    fault: str
    outcome: Outcome
    put: Place | None = None
    found: Divergence | None = None
    reasons: tuple[str, ...] = ()  # ids of what failed, or warned
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """What a self-test came to: one row for each fault that was asked for, of `steps` optimizer
    steps with `seed`."""

    seed: int
    steps: int
    rows: tuple[Row, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """0: all were caught that apply, the weight among them; 1: one was not; 3: one could not be
        tried, or none applies."""
        outcomes = [row.outcome for row in self.rows]
        if "not caught" in outcomes:
            return 1
        no_weight = any(row.fault == "weight" and row.outcome != "caught" for row in self.rows)
        return 3 if "inconclusive" in outcomes or no_weight or "caught" not in outcomes else 0


def selftest(
    given: Spec,
    options: Options,
    watch: Watch,
    faults: Sequence[str] = (),
    steps: int | None = None,
) -> SelfTest:
    """Try these faults, all where none is named, in runs of `steps`. Raises Inconclusive where the
    clean runs are not the same."""
    began = monotonic()
    with prepared(given, options, watch) as (effective, folder):
        seed = effective.random_state.seeds[0]
        whole = replace(effective, determinism=replace(effective.determinism, tolerance=None))
        most = min(whole.train.steps or STEPS, STEPS) if steps is None else steps
        spec = replace(whole, train=replace(whole.train, steps=most))
        clean = _clean(spec, folder, watch, seed)
        trial = _Trial(whole, spec, folder, watch, clean)
        rows = tuple(trial.row(name) for name in FAULTS if name in (faults or FAULTS))
        return SelfTest(
            seed=seed, steps=clean.pair()[0].steps, rows=rows, seconds=round(monotonic() - began, 3)
        )


def judge(
    fault: str, put: Place, comparison: Comparison, clean: Run, faulty: Run, spec: Spec
) -> Row:
    """Whether the gate's verdict on a clean and a faulty run names the fault where it was put
    in."""
    first, pair = comparison.first_divergence, (clean, faulty)
    evidence = Evidence(
        spec=spec, commit=None, uncommitted=(), files=0, runs=pair, pair=pair, comparison=comparison
    )
    flags, generators = flags_effective(evidence), generators_equal(evidence)
    result = SeedResult(clean.plan.arm.seed, comparison)
    verdict, found, _ = decide(
        Findings(
            spec=spec, comparisons=(result,), runs=(), checklist=(flags, generators), cost=None
        )
    )
    reasons = tuple(
        item.id for item in found if verdict == "fail" and item.id != "checklist/uncovered"
    )
    row = Row(fault=fault, outcome="not caught", put=put, found=first, reasons=reasons)
    if put.kind == "flag":
        line = f"{put.name} is False from step {put.step} on"
        return _by_check(replace(row, found=None), flags, lambda text: text.startswith(line))
    if put.kind == "rng" and first is None:
        name = put.name if put.process == "main" else f"{put.process}: {put.name}"
        row = replace(row, why="a warning: no recorded number depends on this generator")
        return _by_check(
            row, generators, lambda text: text == f"{name}: differs from step {put.step} on"
        )
    if first is not None and "determinism/diverged" in reasons and _there(put, first):
        return replace(row, outcome="caught")
    where = "no difference" if first is None else "it in another place"
    return replace(row, why=f"the gate finds {where}")


def _there(put: Place, first: Divergence) -> bool:
    name = first.name.partition(": ")[0] if put.kind == "artifact" else first.name
    place = (put.step, put.kind, put.name) == (first.step, first.kind, name)
    return place and (put.kind == "artifact" or put.process == first.process)


def _by_check(row: Row, result: CheckResult, told: Callable[[str], bool]) -> Row:
    """A fault that a check names in its evidence: where the check fails or warns, as the spec has
    it."""
    seen = result.status in ("fail", "warn")
    line = next((str(item) for item in result.evidence if told(item.text)), "") if seen else ""
    if line:
        why = "; ".join(filter(None, (line, row.why)))
        return replace(row, outcome="caught", reasons=(result.id,), why=why)
    return replace(row, why=f"{result.id} says: {result.message}")


def _plan(spec: Spec, name: str, put: Place | None = None, fault: str = "") -> Plan:
    arm = arms.deterministic(spec.random_state.seeds[0], arms.allowed(spec), spec.train.steps)
    return Plan(name=name, arm=arm, probe={} if put is None else {"fault": put.config(fault)})


def _clean(spec: Spec, folder: GateFolder, watch: Watch, seed: int) -> Results:
    """The clean pair. Raises Inconclusive where it cannot be compared, or diverges: no fault would
    stand out."""
    first = _plan(spec, "clean-1")
    clean = _whole(
        run_series(
            spec,
            folder,
            watch,
            (first, replace(first, name="clean-2", second_of=first.name)),
            measure=False,
        )
    )
    bad = next((run for run in clean.runs if not run.good), None)
    comparison = clean.comparisons.get(seed)
    remedy = "make the gate pass first: `repro-gate diagnose` says why the runs diverge"
    if comparison is not None and comparison.first_divergence is not None:
        why = (
            f"two clean runs diverge {sentence(comparison.first_divergence)}, so that no fault of "
            "ours would stand out"
        )
    elif bad is not None:
        why, remedy = f"the clean runs: {for_terminal(bad.problem, 1_000)}", bad.remedy
    elif comparison is None:
        why = "the clean runs could not be compared"
    else:
        return clean
    raise Inconclusive(why, remedy=remedy)


def _whole(results: Results) -> Results:
    """The results of a series that came to its end; raises what ended it."""
    if results.interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    if results.interrupted:
        raise Inconclusive(
            results.interrupted, remedy="free space, or set TMPDIR to a folder that can be written"
        )
    return results


@dataclass(frozen=True)
class _Trial:
    """The runs of a self-test: `whole` is the spec as it stands, `spec` the one with fewer steps,
    `clean` its pair."""

    whole: Spec
    spec: Spec
    folder: GateFolder
    watch: Watch
    clean: Results

    def row(self, fault: str) -> Row:
        """Put one fault in, and see how it is found."""
        began = monotonic()
        self.watch.said(f"{fault}: {FAULTS[fault]}")
        if fault == "checkpoint":
            row = self._checkpoint()
        else:
            put = place_of_fault(fault, self.clean.pair()[0])
            if isinstance(put, str):
                row = Row(fault=fault, outcome="not applicable", why=put)
            else:
                row = self._race(put) if fault == "race" else self._one(fault, put)
        self.watch.said(f"  {row.outcome}" + (f": {for_terminal(row.why, 300)}" if row.why else ""))
        return replace(row, seconds=round(monotonic() - began, 3))

    def _one(self, fault: str, put: Place) -> Row:
        faulty = self._run(self.spec, _plan(self.spec, f"selftest-{fault}", put, fault))
        return _unusable(fault, put, faulty) or self._judged(fault, put, self.clean, faulty)

    def _race(self, put: Place) -> Row:
        """Two runs that race, for one that does not has no such operator; more where it came to the
        same."""
        first: Results | None = None
        for number in range(_RACES):
            faulty = self._run(
                self.spec, _plan(self.spec, f"selftest-race-{number + 1}", put, "race")
            )
            if bad := _unusable("race", put, faulty):
                return bad
            if first is None:
                first = faulty
            elif _notes(first.runs[0]) != _notes(faulty.runs[0]):
                return self._judged("race", put, first, faulty)
        why = f"the threads came to the same result in all of {_RACES} runs: nothing is shown"
        return Row(fault="race", outcome="inconclusive", put=put, why=why)

    def _checkpoint(self) -> Row:
        """A file is damaged after its run; where the short runs write none, that takes two whole
        ones."""
        spec, clean = self.spec, self.clean
        if not spec.capture.artifacts:
            return Row(
                fault="checkpoint", outcome="not applicable", why="capture.artifacts names no file"
            )
        name = checkpoint_of([*clean.artifacts.get(clean.runs[0].plan.name, {}).values()])
        if name is None and spec.train.steps != self.whole.train.steps:
            self.watch.said("  the short runs write no artifact: two whole runs")
            spec = self.whole
            clean = self._run(spec, _plan(spec, "clean-whole"))
            if not clean.runs[0].good:
                return _unusable("checkpoint", None, clean, noted=False) or Row(
                    fault="checkpoint", outcome="inconclusive"
                )
            name = checkpoint_of([*clean.artifacts.get("clean-whole", {}).values()])
        if name is None:
            return Row(
                fault="checkpoint",
                outcome="not applicable",
                why="no file matches capture.artifacts after a run",
            )
        put, failed = Place(step=last_step(clean.runs), kind="artifact", name=name), list[str]()
        faulty = self._run(
            spec, _plan(spec, "selftest-checkpoint"), partial(self._damage, name, failed)
        )
        if failed:
            return Row(fault="checkpoint", outcome="inconclusive", put=put, why=failed[0])
        return _unusable("checkpoint", put, faulty, noted=False) or self._judged(
            "checkpoint", put, clean, faulty
        )

    def _damage(self, name: str, failed: list[str], root: Path) -> None:
        try:
            with as_training_user(self.folder.sandbox):
                flip_in_file(root, name)
        except (OSError, ValueError) as error:
            failed.append(f"{name} could not be changed: {error}")

    def _run(
        self, spec: Spec, plan: Plan, wrote: Callable[[Path], None] = lambda _: None
    ) -> Results:
        return _whole(run_series(spec, self.folder, Watch(), (plan,), measure=False, wrote=wrote))

    def _judged(self, fault: str, put: Place, clean: Results, faulty: Results) -> Row:
        return judge(
            fault, put, clean.compare_with(faulty), clean.runs[0], faulty.runs[0], self.spec
        )


def _unusable(fault: str, put: Place | None, results: Results, *, noted: bool = True) -> Row | None:
    """Where a run with a fault ended badly, or the fault was not put in: that shows nothing of the
    gate."""
    run = results.runs[0]
    if run.good and (_notes(run) or not noted):
        return None
    why = "the probe did not come to put it in"
    why = why if run.good else f"its run {run.outcome}: {run.problem}"
    return Row(fault=fault, outcome="inconclusive", put=put, why=why)


def _notes(run: Run) -> list[str]:
    return [
        message
        for trace in run.traces
        for identifier, message in trace.notes
        if identifier == _NOTE
    ]
