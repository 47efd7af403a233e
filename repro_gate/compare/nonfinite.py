"""Finds the numbers of a training that are never finite from its first steps on, and whether the
memory fill caused that. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from repro_gate.compare.distances import Traces
from repro_gate.compare.traces import processes
from repro_gate.escape import counted, listed
from repro_gate.trace.model import Trace

# A loss that becomes infinite later is a diverging training, which is no fault of determinism.
FIRST_STEPS = 2
_CAUSE = "memory was read before it was written (uninitialized-memory)"
_FILL = "the flag fill_uninitialized_memory writes NaN there"


def nonfinite(run: Traces, default: Traces | None, filled: bool) -> Iterator[str]:
    """Yield for each process one sentence on parameters with NaN and one on the losses. `default`
    is a run without the flags, if there is one; `filled`: the run had the flag that fills
    uninitialized memory."""
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
    before = f"NaN from before the first step to the end{inside}"
    compared = "" if other is None else "; without the flags it holds other values"
    names_of = defaultdict(list)  # by what is said of them
    for kind, name, step, whole in trace.nonfinite:
        # Old memory may contain a NaN by chance, but hardly only NaN.
        only_here = other is not None and name not in default
        by_fill = only_here or (whole and not default.get(name))
        sentence = before
        if step >= 0:
            sentence = f"NaN from the first steps to the end{inside}"
        elif filled and by_fill:
            sentence = f"{before}: {_CAUSE}, and {_FILL}{compared}"
        if kind == "parameter":
            names_of[sentence].append(name)
    for sentence, names in names_of.items():
        subject, verb = ("parameters", "are") if names[1:] else ("parameter", "is")
        yield f"{subject} {listed(names, 3)} {verb} {sentence}"


def _losses(
    trace: Trace, other: Trace | None, filled: bool, inside: str
) -> Iterator[str]:
    finite = _finite_losses(trace)
    first = next((step for step in finite if not finite[step]), None)
    if first is None or first - min(finite) >= FIRST_STEPS:
        return
    if any(finite[step] for step in finite if step > first):
        return
    sentence = (
        f"no loss is finite from step {first} to the last "
        f"of {counted(len(trace.steps), 'step')}{inside}"
    )
    if filled and other is not None and _finite_losses(other)[first]:
        sentence += f"; without the flags the loss of that step is finite: {_CAUSE}, and {_FILL}"
    yield sentence


def _finite_losses(trace: Trace) -> defaultdict[int, bool]:
    """Return step -> whether any loss of it is finite, for the steps that recorded one."""
    any_finite = defaultdict[int, bool](bool)
    for block in trace.blocks:
        if block.kind == "loss":
            for value in block.values:
                any_finite[block.step] |= math.isfinite(float.fromhex(value))
    return any_finite
