"""Stops the training at a checkpoint, twice, and lets it go on: what a preempted job goes through.
Each leg is compared with the first deterministic run, which was never stopped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import msgspec

from repro_gate._version import DOCS_URL
from repro_gate.compare.model import Divergence, Leg, NotRestored, Resumption
from repro_gate.compare.resume import beginnings, leg_of
from repro_gate.compare.traces import processes
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal, listed
from repro_gate.report.model import Reason
from repro_gate.report.wording import place_of
from repro_gate.runs.ending import PREEMPTED, last_exception
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.reading import differences
from repro_gate.runs.results import Results
from repro_gate.runs.series import run
from repro_gate.trace.model import Trace

LEGS = 3
_GRACE = 30.0  # seconds between SIGTERM and SIGKILL, as Slurm and Kubernetes have it
_PAGE = f"({DOCS_URL}/resume.md)"
_REMEDY = "save in the checkpoint what is named, and load it before the first step that goes on"


@dataclass(frozen=True)
class Resumed:
    """The legs of a training that was stopped and went on, and the run that could be no leg of it,
    where one ended badly."""

    legs: tuple[Leg, ...] = ()
    broken: RunResult | None = None
    problem: str = ""  # why not every leg could be run or compared

    def resumption(self) -> Resumption | None:
        """Return what the report holds of it; None if it could not be seen."""
        alone = len(self.legs) == 1 and self.legs[0].identical
        if not self.legs or alone or self.broken or self.problem:
            return None
        names = [item.component for leg in self.legs for item in leg.not_restored]
        return Resumption(
            identical=all(leg.identical for leg in self.legs),
            legs=self.legs,
            not_restored=tuple(dict.fromkeys(names)),
        )


def resumed(results: Results, watch: Watch) -> Resumed | None:
    """Run the legs that the spec asks for under `resume`. None if it does not, or if the training
    is not the same even without being stopped. Raises UsageError if the training ends before it
    could be stopped."""
    wanted = results.spec.resume
    reference = results.reference
    if wanted is None or reference is None:
        return None
    if wanted.after >= reference.steps:
        raise UsageError(
            f"resume.after is {wanted.after}, and the training takes {reference.steps} steps",
            remedy="stop it earlier, or let it train longer",
            reason_id="usage/resume",
        )
    found = Resumed()
    last: RunResult | None = None
    try:
        while request := next_leg(results, reference, found.legs, last):
            watch.said(for_terminal(request.announcement))
            stop = _Stop(reference, is_first=not found.legs)
            before = last
            last = run(results.spec, results.folder, request, stop.tick)
            is_torn = before is not None and before.half_written
            if last.good or last.outcome == PREEMPTED:
                leg = _judged(results, reference, last, found.legs)
            elif is_torn and last.outcome == "crashed":
                end = found.legs[-1].ends
                leg = Leg(
                    number=len(found.legs) + 1, begins=end, ends=end, identical=False
                )
            else:
                return replace(found, broken=last)
            if is_torn and _is_of_no_step(leg):
                lost = (_torn(last), *leg.not_restored)
                leg = msgspec.structs.replace(leg, not_restored=lost)
            found = replace(found, legs=(*found.legs, leg))
            for note in notes(found.legs, last, reference.steps):
                results.warn(f"resume: {note}")
    except (KeyboardInterrupt, Inconclusive, OSError) as error:
        if isinstance(error, KeyboardInterrupt):
            results.interrupt(error)
        return replace(found, problem=str(error) or "it was interrupted")
    return found


def next_leg(
    results: Results,
    reference: RunResult,
    legs: Sequence[Leg],
    last: RunResult | None,
) -> RunRequest | None:
    """Return the next leg to run: the first as the training begins, each later one from the
    checkpoint at which the one before was stopped. None after the last, after one that went to its
    end, and after one that was another training. Pure."""
    spec = results.spec
    number = len(legs) + 1
    wanted = spec.resume
    seed = str(reference.request.arm.seed)
    assert wanted is not None  # the caller asked
    is_stopped = number < LEGS
    stops = {"preempt": asdict(wanted)} if is_stopped else {}
    first = replace(
        reference.request,
        name=f"leg-{number}",
        probe={"boundary": True, **stops},
        keep_final=False,
        observe=False,
        auxiliary=True,
        grace=_GRACE if is_stopped and wanted.stop == "term" else 0.0,
        announcement=f"resume: a run that is stopped at a checkpoint after {wanted.after} steps",
    )
    if last is None:
        return first
    stopped = last.outcome == PREEMPTED and last.checkpoint
    ended = not stopped or legs[-1].ends >= reference.steps
    if ended or number > LEGS or not legs[-1].identical:
        return None
    command = wanted.run or spec.train.run or ""
    blanks = {"seed": seed, "checkpoint": shlex.quote(last.checkpoint)}
    for name, value in blanks.items():
        command = command.replace(f"{{{name}}}", value)
    return replace(
        first,
        command=command,
        goes_on=True,
        checkpoint=last.checkpoint,
        announcement=f"resume: on from {last.checkpoint}, stopped after step {legs[-1].ends - 1}",
    )


def notes(legs: Sequence[Leg], last: RunResult, steps: int) -> Iterator[str]:
    """Yield what a reader should know of the newest leg of a training of so many steps, and what
    does not change the verdict. Pure."""
    leg = legs[-1]
    if last.in_place:
        yield (
            f"{last.request.checkpoint} was written over in place: a job that is killed meanwhile "
            "loses it; write the checkpoint beside it, then rename it"
        )
    if last.read_beside:
        yield (
            f"a training that goes on also reads {listed(last.read_beside, 3)}: a job that gets "
            "the checkpoint alone would lack it"
        )
    if len(legs) > 1 and leg.begins < legs[-2].begins:
        yield (
            f"{last.name} goes on from step {leg.begins}, though the leg before it began at step "
            f"{legs[-2].begins}: not from the newest checkpoint"
        )
    went_to_its_end = last.outcome != PREEMPTED or leg.ends >= steps
    if len(legs) == 2 and leg.identical and went_to_its_end:
        yield (
            "the training was stopped once only: it ended before another checkpoint came. Some "
            "faults show from the second time on; lower resume.after"
        )


def _is_of_no_step(leg: Leg) -> bool:
    """Return whether a leg crashed, or began with a state that the reference never had."""
    lost = {item.component for item in leg.not_restored}
    return not leg.identical and (
        not lost or bool(lost & {"parameters", "unrecorded", "scratch"})
    )


def _torn(leg: RunResult) -> NotRestored:
    """Return what a leg lacks that resumed from half a checkpoint."""
    sentence = (
        f"{leg.request.checkpoint} was being written when the training was stopped"
    )
    raised = None if leg.outcome == PREEMPTED else last_exception(leg.ended.tail)
    return NotRestored("checkpoint", sentence + (f": {raised}" if raised else ""))


def _judged(
    results: Results, reference: RunResult, last: RunResult, legs: Sequence[Leg]
) -> Leg:
    """Return what a leg shows. Raises Inconclusive if an artifact of it could not be compared."""
    ended = last.outcome != PREEMPTED
    artifacts: list[Divergence] = []
    if ended:
        artifacts, _, uncompared = differences(
            reference.artifacts, last.artifacts, results.reader, reference.steps - 1
        )
        for item in uncompared:
            if not item.same:
                raise Inconclusive(f"{item.name} could not be compared: {item.why}")
    repeats = results.pair(reference.arm.seed)[1:]
    return leg_of(
        reference.traces,
        last.traces,
        number=len(legs) + 1,
        reached_end=ended,
        expected=legs[-1].ends if legs else 0,
        is_cut=reference.outcome == "stopped",
        artifacts=artifacts,
        again=repeats[0].traces if repeats else (),
    )


class _Stop:
    """Ends a leg at its checkpoint, or where `train.steps` stopped the reference."""

    def __init__(self, reference: RunResult, *, is_first: bool) -> None:
        self.reference = processes(reference.traces)
        self.limit = reference.steps if reference.outcome == "stopped" else None
        # the step of the reference at which the leg begins; None: not known yet
        self.begins = 0 if is_first else None

    def tick(self, traces: Sequence[Trace]) -> str | None:
        """Return why the leg has done enough; None if it has not."""
        if any(trace.preempted for trace in traces):
            return PREEMPTED
        trained = processes(traces)
        if self.limit is None or not trained:
            return None
        steps = [len(trace.steps) for trace in trained.values()]
        if self.begins is None and all(steps):
            self.begins = max(beginnings(self.reference, trained), default=0)
        is_done = self.begins is not None and self.begins + min(steps) >= self.limit
        return PREEMPTED if is_done else None


def failures(found: Resumed | None) -> Iterator[Reason]:
    """Yield why a resumed training is not the same."""
    legs = found.legs if found else ()
    for before, leg in pairwise(legs):
        if leg.number > 2 and leg.begins == before.begins:
            yield Reason(
                "resume/no-progress",
                f"it goes back to step {leg.begins} each time it goes on: it never gets on",
                f"let it save a newer checkpoint than the one that it went on from {_PAGE}",
            )
        lost = [item.message for item in leg.not_restored]
        if any(item.component == "checkpoint" for item in leg.not_restored):
            yield Reason(
                "resume/half-written",
                f"after step {before.ends - 1} a preemption loses the checkpoint: "
                f"{'; '.join(lost)}",
                f"write the checkpoint beside the last one, then rename it {_PAGE}",
            )
        elif not leg.identical:
            first = leg.first_divergence
            if first and not lost:
                lost = [f"it diverges {place_of(first, leg.ends)}"]
            yield Reason(
                "resume/diverged",
                f"resumed at step {leg.begins}, it is not the same training: {'; '.join(lost)}",
                f"{_REMEDY} {_PAGE}",
                tuple(place for item in leg.not_restored for place in item.locations),
            )
    if legs and not legs[0].identical:
        yield Reason(
            "resume/first-leg",
            "the run that was to be stopped diverged before it was",
            "run the gate again: two runs alone did not show it",
        )


def unanswered(found: Resumed, checkpoint: str) -> Iterator[Reason]:
    """Yield why it could not be seen whether the training goes on as it should."""
    if found.broken is not None:
        run = found.broken
        raised = last_exception(run.ended.tail)
        yield Reason(
            "resume/crashed",
            f"{run.request.name}: {run.problem}" + (f": {raised}" if raised else ""),
            f"see whether {checkpoint} is whole, and whether the command reads it {_PAGE}",
        )
    elif found.problem:
        yield Reason(
            "resume/crashed",
            f"not every leg could be run and compared: {found.problem}",
            f"mend what it names, and run the gate again {_PAGE}",
        )
    elif len(found.legs) == 1 and found.legs[0].identical:
        yield Reason(
            "resume/no-checkpoint",
            f"the training ended before it was stopped at a new match of {checkpoint}",
            "correct resume.checkpoint (a link does not count), or lower resume.after",
        )
