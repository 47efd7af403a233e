"""Checks of category `random-state`: were the flags effective, and does the seed steer everything?"""

from __future__ import annotations

from repro_gate.analysis.compare import first_difference, key_of, processes
from repro_gate.checks.interface import Check, CheckResult, Evidence, shortened
from repro_gate.runs.conditions import not_effective
from repro_gate.runs.launch import Run

CATEGORY = "random-state"


def flags_effective(evidence: Evidence) -> CheckResult:
    """Every flag, read back at every step of every deterministic run, had the value that the gate set."""
    name = "random-state/flags"
    runs = [run for run in evidence.runs if run.plan.condition.name == "deterministic"]
    readings = sum(len(trace.steps) for run in runs for trace in run.traces)
    if not readings:
        return CheckResult(name, CATEGORY, "skip", "no step was taken under the flags")
    lines = undone_lines(runs)
    if lines:
        return CheckResult(
            name,
            CATEGORY,
            "fail",
            "training code switched a determinism flag off",
            shortened(lines),
            "remove the line; if the flag must stay off, name it under determinism.allow with a reason",
        )
    if not any(settings for run in runs for trace in run.traces for settings in trace.settings):
        return CheckResult(name, CATEGORY, "skip", "the training does not use torch, so no flag of torch was read back")
    for_a_while = sorted(
        {
            f"{item.flag} set to {item.value} at {item.file}:{item.line}, in step {item.step}"
            for run in runs
            for trace in run.traces
            if trace.trained
            for item in trace.undone
            if item.step >= 0
        }
    )
    if for_a_while:
        message = "training code switched a determinism flag off and on again within a step"
        return CheckResult(
            name, CATEGORY, "warn", message, shortened(for_a_while), "leave the flag on, or name it under determinism.allow with a reason"
        )
    return CheckResult(name, CATEGORY, "pass", f"every flag read back as set, at each of {readings} steps")


def undone_lines(runs: list[Run]) -> tuple[str, ...]:
    """`flag is VALUE from step N: file:line` for each flag that a reading showed at another value."""
    lines: dict[str, None] = {}
    for run in runs:
        for trace in run.traces:
            first: dict[str, tuple[int, object]] = {}
            for mark in trace.steps:
                for flag, value in not_effective(trace.settings[mark.flags], run.plan.condition).items():
                    first.setdefault(flag, (mark.step, value))
            for flag, (step, value) in first.items():
                where = [f"{item.file}:{item.line}" for item in trace.undone if flag.startswith(item.flag)]
                lines[f"{flag} is {value} from step {step} on" + (f", set at {where[0]}" if where else "")] = None
    return tuple(lines)


def generators_equal(evidence: Evidence) -> CheckResult:
    """The states of all generators were equal in both runs, from the start to the end."""
    name = "random-state/generators"
    tally = evidence.comparison.by_kind.get("rng") if evidence.comparison else None
    if tally is None or evidence.comparison is None:
        return CheckResult(name, CATEGORY, "skip", "no generator state was recorded")
    first = evidence.comparison.first_divergence
    if tally.differing and first is not None and first.kind == "rng":
        return CheckResult(
            name,
            CATEGORY,
            "fail",
            f"the {first.name} generator's state differs from step {first.step} on",
            (f"step {first.step}",),
            "something draws a number of values, or seeds, that depends on more than the seed",
        )
    if tally.differing:
        return CheckResult(name, CATEGORY, "warn", "generator states differ, after the runs had parted for another reason")
    return CheckResult(name, CATEGORY, "pass", f"{tally.tensors} generators were in the same state in both runs, at every step")


def reseeded_differs(evidence: Evidence) -> CheckResult:
    """The control run with another seed gave other bits: the gate looks at something, and the seed reaches it."""
    name = "random-state/reseeded"
    if evidence.control is None or evidence.control_comparison is None:
        return CheckResult(name, CATEGORY, "skip", "the reseeded control did not run to its end")
    seed = evidence.control.plan.condition.seed
    if not any(_bits_differ(run, evidence.control) for run in evidence.pair[:1]):
        return CheckResult(
            name,
            CATEGORY,
            "warn",
            f"a run with another seed ({seed}) gave the same bits: the seed does not reach the training",
            remedy="the script sets a seed of its own, or draws nothing at random: take the seed from the command line and "
            "write `{seed}` into train.run, so that reproducing under one seed says something about others",
        )
    return CheckResult(name, CATEGORY, "pass", f"another seed ({seed}) gave other bits, as it must")


def _bits_differ(run: Run, control: Run) -> bool:
    """Whether anything but the generators' states differs of what both runs recorded. What one lacks is no difference: the short control
    ends with digests that `capture.every` leaves out of the long run."""
    first = {label: {key_of(block): block for block in trace.blocks} for label, trace in processes(run.traces).items()}
    return any(
        block.kind != "rng" and first_difference(label, first.get(label, {}), block) is not None
        for label, trace in processes(control.traces).items()
        for block in trace.blocks
    )


CHECKS: tuple[Check, ...] = (flags_effective, generators_equal, reseeded_differs)
