"""Says which numbers of a training are not finite from its first steps to its end, and whether the
memory fill made them so. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from repro_gate.compare.traces import processes
from repro_gate.escape import listed
from repro_gate.trace.model import Trace

# a loss that is finite until later has diverged, which is the training's own affair
FIRST_STEPS = 2
_CAUSE = "memory was read before it was written (uninitialized-memory)"
_FILL = "the flag fill_uninitialized_memory writes NaN there"


def nonfinite(
    run: Sequence[Trace], default: Sequence[Trace] | None, filled: bool
) -> Iterator[str]:
    """Yield one sentence for the parameters that hold NaN and one for the losses, for each process.
    `default` is a run without the flags, where there is one; `filled`: the run had the flag that
    fills uninitialized memory."""
    others = processes(default or ())
    for label, trace in processes(run).items():
        inside = "" if label == "main" else f" in process {label}"
        yield from _parameters(trace, others.get(label), filled, inside)
        yield from _losses(trace, others.get(label), filled, inside)


def _parameters(
    trace: Trace, other: Trace | None, filled: bool, inside: str
) -> Iterator[str]:
    # name -> whether all of it was NaN before the first step, without the flags
    default = {
        name: whole
        for kind, name, step, whole in (other.nonfinite if other is not None else ())
        if kind == "parameter" and step < 0
    }
    from_fill = list[str]()
    before = list[str]()
    later = list[str]()
    for kind, name, step, whole in trace.nonfinite:
        if kind != "parameter":
            continue
        # old memory may hold a NaN by chance, but not NaN alone
        only_here = other is not None and name not in default
        by_fill = only_here or (whole and not default.get(name))
        if step >= 0:
            later.append(name)
        elif filled and by_fill:
            from_fill.append(name)
        else:
            before.append(name)
    since = f"NaN from before the first step to the end{inside}"
    if from_fill:
        compared = "" if other is None else "; without the flags it holds other values"
        yield f"{_subject(from_fill)} {since}: {_CAUSE}, and {_FILL}{compared}"
    if before:
        yield f"{_subject(before)} {since}"
    if later:
        yield f"{_subject(later)} NaN from the first steps to the end{inside}"


def _losses(
    trace: Trace, other: Trace | None, filled: bool, inside: str
) -> Iterator[str]:
    finite = finite_losses(trace)
    first = next((step for step, any_finite in finite.items() if not any_finite), None)
    if first is None or first - min(finite) >= FIRST_STEPS:
        return
    if any(finite[step] for step in finite if step > first):
        return
    sentence = (
        f"no loss is finite from step {first} to the last "
        f"of {len(trace.steps)} steps{inside}"
    )
    if filled and other is not None and finite_losses(other).get(first):
        sentence += f"; without the flags the loss of that step is finite: {_CAUSE}, and {_FILL}"
    yield sentence


def finite_losses(trace: Trace) -> Mapping[int, bool]:
    """Return step -> whether any loss of it is finite, for the steps that recorded one."""
    any_finite: dict[int, bool] = {}
    for block in trace.blocks:
        if block.kind == "loss" and block.values:
            finite = any(math.isfinite(float.fromhex(value)) for value in block.values)
            any_finite[block.step] = any_finite.get(block.step, False) or finite
    return any_finite


def _subject(names: Sequence[str]) -> str:
    first_names = listed(names, 3)
    if len(names) == 1:
        return f"parameter {first_names} is"
    return f"parameters {first_names} are"
