"""Stops the training at a checkpoint twice and resumes it, as a preempted job is. Compares each leg
with the first deterministic run, which was never stopped."""

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
from repro_gate.escape import counted, for_terminal, listed
from repro_gate.report.model import Reason
from repro_gate.report.wording import place_of
from repro_gate.runs.ending import PREEMPTED
from repro_gate.runs.launch import Recording, RunRequest, RunResult
from repro_gate.runs.legs import LegStart
from repro_gate.runs.progress import Watch
from repro_gate.runs.reading import differences
from repro_gate.runs.results import EARLY_ENDS, Results
from repro_gate.runs.series import run
from repro_gate.runs.watching import Tick
from repro_gate.trace.model import Trace

LEGS = 3
# components of a leg that began with a state that the reference never had
_OF_NO_STEP = {"parameters", "unrecorded", "scratch"}
# seconds between SIGTERM and SIGKILL, the default of Slurm and Kubernetes
_GRACE = 30.0
_PAGE = f"({DOCS_URL}/resume.md)"
_REMEDY = (
    "save the named state in the checkpoint, and load it before the first resumed step"
)


@dataclass(frozen=True)
class Resumed:
    """The legs of a resumed training. `broken` is a run that ended badly and so became no leg."""

    legs: tuple[Leg, ...] = ()
    broken: RunResult | None = None
    problem: str = ""  # why not every leg could be run or compared
    cut_off: str = ""  # a checkpoint that was gone while another was written over it

    @property
    def was_never_stopped(self) -> bool:
        """Return whether the training ended before it was stopped at a checkpoint."""
        return len(self.legs) == 1 and self.legs[0].identical

    def resumption(self) -> Resumption | None:
        """Return the result for the report; None if it is unknown whether the training resumes."""
        if self.was_never_stopped or self.broken or self.problem or not self.legs:
            return None
        names = [item.component for leg in self.legs for item in leg.not_restored]
        return Resumption(
            identical=all(leg.identical for leg in self.legs),
            legs=self.legs,
            not_restored=tuple(dict.fromkeys(names)),
        )


def resumed(results: Results, watch: Watch) -> Resumed | None:
    """Run the legs that `resume` in the spec asks for. None if the spec has no `resume`, or if the
    training is not reproducible even when it is not stopped. Raises UsageError if the training ends
    before it could be stopped."""
    wanted = results.spec.resume
    reference = results.reference
    if wanted is None or reference is None:
        return None
    if wanted.after >= reference.steps:
        raise UsageError(
            f"resume.after is {wanted.after}, but the training takes "
            f"{counted(reference.steps, 'step')}",
            remedy="lower resume.after, or train more steps",
            reason_id="usage/resume",
        )
    found = Resumed()
    last: RunResult | None = None
    try:
        while request := next_leg(results, reference, found.legs, last):
            watch.said(for_terminal(request.announcement))
            tick = _stop(reference, is_first=not found.legs)
            is_torn = last is not None and last.leg.half_written
            last = run(results.spec, results.folder, request, tick)
            leg = _leg(results, reference, last, found.legs, is_torn=is_torn)
            if leg is None:
                return replace(found, broken=last)
            found = replace(found, legs=(*found.legs, leg))
            if last.leg.cut_off:
                found = replace(found, cut_off=last.leg.resumed_from)
            for note in notes(found.legs, last, reference.steps):
                results.warn(f"resume: {note}")
    except EARLY_ENDS as error:
        if isinstance(error, KeyboardInterrupt):
            results.interrupt(error)
        return replace(found, problem=str(error) or "it was interrupted")
    return found


def next_leg(
    results: Results, reference: RunResult, legs: Sequence[Leg], last: RunResult | None
) -> RunRequest | None:
    """Return the next leg: the first starts from the beginning, each later one from the checkpoint
    at which the leg before was stopped. None after the last leg, after a leg that ran to the end,
    and after a leg that differs from the reference. Pure."""
    spec = results.spec
    wanted = spec.resume
    assert wanted is not None  # the caller asked
    number = len(legs) + 1
    is_stopped = number < LEGS
    after = counted(wanted.after, "step")
    announcement = f"a run that is stopped at a checkpoint after {after}"
    command = checkpoint = ""
    if last is not None:
        before = legs[-1]
        checkpoint = last.leg.checkpoint
        stopped = last.outcome == PREEMPTED and checkpoint
        ended = not stopped or before.ends >= reference.steps
        if ended or number > LEGS or not before.identical:
            return None
        command = wanted.run or spec.train.run or ""
        command = command.replace("{seed}", str(reference.arm.seed))
        command = command.replace("{checkpoint}", shlex.quote(checkpoint))
        stop = f"the last stop was after step {before.ends - 1}"
        announcement = f"a run from {checkpoint}; {stop}"
    return replace(
        reference.request,
        name=f"leg-{number}",
        command=command,
        recording=Recording(),
        probe={"boundary": True, **({"preempt": asdict(wanted)} if is_stopped else {})},
        counts="never",
        announcement=f"resume: {announcement}",
        leg=LegStart(
            pattern=wanted.checkpoint,
            checkpoint=checkpoint,
            grace=_GRACE if is_stopped and wanted.stop == "term" else 0.0,
        ),
    )


def notes(legs: Sequence[Leg], last: RunResult, steps: int) -> Iterator[str]:
    """Yield notes about the newest leg of a training of so many steps, which do not change the
    verdict. Pure."""
    leg = legs[-1]
    end = last.leg
    if end.in_place and not end.cut_off:
        yield (
            f"{end.resumed_from} was overwritten in place: a job that is killed meanwhile loses "
            "it; write to another file, then rename that"
        )
    if end.read_beside:
        yield (
            f"the resumed training also reads {listed(end.read_beside, 3)}: a job that has only "
            "the checkpoint would lack it"
        )
    if len(legs) > 1 and leg.begins < legs[-2].begins:
        yield (
            f"{last.name} resumes at step {leg.begins}, though the leg before it began at step "
            f"{legs[-2].begins}: it does not use the newest checkpoint"
        )
    went_to_its_end = last.outcome != PREEMPTED or leg.ends >= steps
    if len(legs) == 2 and leg.identical and went_to_its_end:
        yield (
            "the training was stopped only once: it ended before it saved another checkpoint. "
            "Some faults need a second stop; lower resume.after"
        )


def _leg(
    results: Results,
    reference: RunResult,
    last: RunResult,
    legs: Sequence[Leg],
    *,
    is_torn: bool,
) -> Leg | None:
    """Return the leg that a run became; None if it ended badly. `is_torn`: the checkpoint from
    which it resumed was being written when the leg before was ended, which explains a crash, and a
    state that the reference never had."""
    if last.good or last.outcome == PREEMPTED:
        leg = _judged(results, reference, last, legs)
        lost = {item.component for item in leg.not_restored}
        if not is_torn or leg.identical or not lost & _OF_NO_STEP:
            return leg
    elif is_torn and last.outcome == "crashed":
        end = legs[-1].ends
        leg = Leg(number=len(legs) + 1, begins=end, ends=end, identical=False)
    else:
        return None
    sentence = (
        f"{last.leg.resumed_from} was being written when the training was stopped"
    )
    if last.raised and last.outcome != PREEMPTED:
        sentence += f": {last.raised}"
    torn = NotRestored("checkpoint", sentence)
    return msgspec.structs.replace(leg, not_restored=(torn, *leg.not_restored))


def _judged(
    results: Results, reference: RunResult, last: RunResult, legs: Sequence[Leg]
) -> Leg:
    """Compare a leg with the reference. Raises Inconclusive if one of its artifacts could not be
    compared."""
    ended = last.outcome != PREEMPTED
    artifacts = list[Divergence]()
    if ended:
        artifacts, _, uncompared = differences(
            reference.artifacts, last.artifacts, results.reader, reference.steps - 1
        )
        for item in uncompared:
            if not item.no_file:
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


def _stop(reference: RunResult, *, is_first: bool) -> Tick:
    """Return what ends a leg at its checkpoint, or at the step at which `train.steps` stopped the
    reference."""
    ours = processes(reference.traces)
    limit = reference.steps if reference.outcome == "stopped" else None
    # the step of the reference at which the leg begins; None: it is unknown yet
    begins = 0 if is_first else None

    def tick(traces: Sequence[Trace]) -> str | None:
        nonlocal begins
        if any(trace.preempted for trace in traces):
            return PREEMPTED
        trained = processes(traces)
        if limit is None or not trained:
            return None
        steps = [len(trace.steps) for trace in trained.values()]
        if begins is None and all(steps):
            begins = max(beginnings(ours, trained), default=0)
        is_done = begins is not None and begins + min(steps) >= limit
        return PREEMPTED if is_done else None

    return tick


def failures(found: Resumed | None) -> Iterator[Reason]:
    """Yield the reasons why a resumed training differs."""
    legs = found.legs if found else ()
    if found and found.cut_off:
        yield Reason(
            "resume/in-place",
            f"{found.cut_off} was written over in place, and for a while held neither the old "
            "checkpoint nor the new one: a job that is killed meanwhile loses both",
            f"write the checkpoint to another file, then rename it {_PAGE}",
        )
    for before, leg in pairwise(legs):
        if leg.number > 2 and leg.begins == before.begins:
            yield Reason(
                "resume/no-progress",
                f"it restarts at step {leg.begins} each time it resumes: it makes no progress",
                f"let it save a newer checkpoint than the one that it resumed from {_PAGE}",
            )
        lost = [item.message for item in leg.not_restored]
        if any(item.component == "checkpoint" for item in leg.not_restored):
            yield Reason(
                "resume/half-written",
                f"after step {before.ends - 1} a preemption loses the checkpoint: "
                f"{'; '.join(lost)}",
                f"write the checkpoint to another file, then rename it {_PAGE}",
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
            "the first leg diverged before it was stopped",
            "run the gate again: the two runs before did not show this divergence",
        )


def unanswered(found: Resumed, checkpoint: str) -> Iterator[Reason]:
    """Yield the reasons why it is unknown whether the training resumes correctly."""
    if found.broken is not None:
        run = found.broken
        yield Reason(
            "resume/crashed",
            ": ".join(filter(None, (run.name, run.problem, run.last_words))),
            f"check that {checkpoint} is complete, and that the command reads it {_PAGE}",
        )
    elif found.problem:
        yield Reason(
            "resume/crashed",
            f"not every leg could be run and compared: {found.problem}",
            f"fix that, and run the gate again {_PAGE}",
        )
    elif found.was_never_stopped:
        yield Reason(
            "resume/no-checkpoint",
            f"the training ended before it was stopped at a new match of {checkpoint}",
            "correct resume.checkpoint (a link does not count), or lower resume.after",
        )
