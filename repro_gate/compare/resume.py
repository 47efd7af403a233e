"""Decides whether a training that was stopped and resumed is the same training: at which step each
leg begins, and whether it repeats the steps of the reference, the run that was never stopped. What
its checkpoint did not restore, `restored.py` says. Pure.

Steps are numbered as in the reference. A leg itself counts from 0; the step at which it begins is
found by its parameters, never by a file's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import msgspec

from repro_gate.compare.distances import Processes, Traces, key_of
from repro_gate.compare.model import Divergence, Leg, NotRestored
from repro_gate.compare.restored import (
    NAMED,
    Start,
    began_anew,
    boundary,
    drawn_by_leg,
    generators,
    later,
    missing_at,
    no_parameters,
    unequal,
)
from repro_gate.compare.traces import compare_runs, processes
from repro_gate.compare.unrecorded import differing_modules
from repro_gate.escape import listed
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace

_MOST_PLACES = 10  # steps of the reference that are weighed if several fit


def leg_of(
    reference: Traces,
    leg: Traces,
    *,
    number: int,
    reached_end: bool,
    expected: int,
    is_cut: bool = False,
    artifacts: Sequence[Divergence] = (),
    again: Traces = (),
) -> Leg:
    """Compare one leg with the reference. `number` counts from 1; the first leg begins at step 0.

    `reached_end`: the leg ran to the end of the training, so missing or extra steps are a
    difference. `is_cut`: `train.steps` stopped the reference, so extra steps are left out. In a leg
    that was stopped, each process is compared as far as it came. `expected`: the step at which the
    checkpoint was first seen, used if the parameters fit no step. `again` is a repeat of the
    reference.
    """
    ours = processes(reference)
    unsteady = _unsteady_generators(ours, processes(again))
    ours, theirs = (
        {label: _without(trace, unsteady) for label, trace in run.items()}
        for run in (ours, processes(leg))
    )
    begins, missing = _start(ours, theirs, number, expected)
    first = []
    second = [theirs[label] for label in theirs if label not in ours]
    for label, trace in ours.items():
        own = theirs.get(label)
        if own is not None or reached_end:
            start = Start(trace, own or replace(trace, blocks=[], steps=[]), begins)
            steps = _common_steps(start, reached_end, is_cut)
            first.append(_part(start, trace, begins, steps))
            second += [_part(start, own, 0, steps)] if own else []
    compared = compare_runs(first, second, artifacts)
    found = compared.first_divergence
    lost = []
    if found is None and reached_end:
        moving = _differing_modules(reference, again)
        lost = [it for it in _differing_modules(reference, leg) if it not in moving]
    if lost:
        sentence = f"no optimizer moves them, and they differ at the end: {listed(lost, NAMED)}"
        missing.append(NotRestored("ema", sentence))
    if found is not None:
        if found.kind != "artifact":
            found = replace(found, step=found.step + begins)
        missing = missing or list(later(found, begins, reference))
        if all(item.component == "unrecorded" for item in missing):
            missing += drawn_by_leg(leg, reference)
    anew = number > 1 and begins == 0
    return Leg(
        number=number,
        begins=begins,
        ends=begins + max((len(trace.steps) for trace in second), default=0),
        identical=compared.identical and not (anew or lost),
        not_restored=tuple(missing),
        first_divergence=found,
    )


def _start(
    ours: Processes, theirs: Processes, number: int, expected: int
) -> tuple[int, list[NotRestored]]:
    """Return the step at which a leg begins, and what it has not restored there. If several steps
    fit, it is the one at which least is missing."""
    places = [0] if number == 1 else beginnings(ours, theirs)[-_MOST_PLACES:]
    if places:
        weighed = [(missing_at(ours, theirs, place), place) for place in places]
        missing, begins = min(weighed, key=lambda item: (len(item[0]), -item[1]))
    else:
        begins = _likeliest(ours, theirs, expected)
        missing = [no_parameters(ours, theirs, begins)]
        missing += missing_at(ours, theirs, begins)
    if number > 1 and begins == 0:
        missing = [began_anew(theirs)]
    return begins, missing


def beginnings(reference: Processes, leg: Processes) -> list[int]:
    """Return the steps of the reference before which every process has the parameters with which
    the leg begins, in order; empty if there are none."""
    common = [label for label in reference if label in leg]
    found = [set(_fitting(reference[label], leg[label])) for label in common]
    return sorted(set.intersection(*found)) if found else []


def _fitting(reference: Trace, leg: Trace) -> Iterator[int]:
    """Yield the steps of one process before which it has the parameters with which a leg begins. If
    a training says itself what is recorded, and nothing before its first step, yield the steps that
    recorded what that one did."""
    if boundary(leg, "parameter"):
        for step, equal, wanted in _equal_before(reference, leg, ("parameter",)):
            if equal == wanted:
                yield step
        return
    own = [item for item in leg.blocks if item.kind in ("loss", "parameter")][:1]
    for block in reference.blocks if own else ():
        if (block.kind, block.digests) == (own[0].kind, own[0].digests):
            yield block.step


def _equal_before(
    reference: Trace, leg: Trace, kinds: Sequence[str]
) -> Iterator[tuple[int, int, int]]:
    """Yield each step of one process, with how much of what a leg begins with it has before that
    step, and how much that is in all."""
    wanted = {
        (kind, name): digest
        for kind in kinds
        for name, digest in boundary(leg, kind).items()
    }
    equal = set[tuple[str, str]]()
    done = 0  # steps whose blocks were all looked at
    for block in reference.blocks:
        if block.step >= done:
            yield done, len(equal), len(wanted)
            done = block.step + 1
        for name, digest in block.items() if block.kind in kinds else ():
            key = block.kind, name
            (equal.add if digest == wanted.get(key) else equal.discard)(key)
    yield min(done, len(reference.steps)), len(equal), len(wanted)


def _likeliest(reference: Processes, leg: Processes, expected: int) -> int:
    """Return the step, not the first, before which the reference has most of the state with which a
    leg begins that has the parameters of no step; `expected` if none has more than others."""
    counts = Counter({expected: 0})
    for label in reference.keys() & leg.keys():
        kinds = "parameter", "buffer", "optimizer"
        for step, equal, _ in _equal_before(reference[label], leg[label], kinds):
            counts[step] += equal if step else 0
    return max(counts, key=lambda step: (counts[step], step == expected))


def _common_steps(start: Start, reached_end: bool, is_cut: bool) -> int | None:
    """Return how many steps of a leg's process are compared; None: all, and all remaining steps of
    the reference."""
    left = max(len(start.reference.steps) - start.begins, 0)
    count = len(start.leg.steps)
    if count > left and not is_cut:
        return count  # it goes on beyond the reference's end
    return None if reached_end and count <= left else min(count, left)


def _part(start: Start, trace: Trace, begins: int, steps: int | None) -> Trace:
    """Return one of the two processes from a step on, counted anew: `steps` of it, or all that are
    left; without its state before them, and without generators of no effect."""
    end = inf if steps is None else begins + steps
    blocks = [
        replace(block, step=block.step - begins)
        for block in _without(trace, start.idle_generators).blocks
        if begins <= block.step < end
    ]
    marks = enumerate(trace.steps[begins:][:steps])
    return replace(
        trace,
        blocks=list(_first_step_alike(start, blocks)),
        steps=[msgspec.structs.replace(mark, step=place) for place, mark in marks],
    )


def _first_step_alike(start: Start, blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks of a run; of its first step only what a leg and the reference both have: the
    last batches that were fetched, the last losses, the generators when these are computed, and
    what its update changes."""
    first = [block for block in blocks if block.step == 0]
    kinds = [block.kind for block in first] + [""]
    at_gradient = kinds.index("gradient") if "gradient" in kinds else 0
    # The first are left out, so that as many remain as are compared.
    counts = Counter(
        batch=min(len(start.batches) - kinds.count("batch"), 0),
        loss=min(start.passes - kinds.count("loss"), 0),
        rng=min(start.passes - list(pairwise(kinds)).count(("rng", "loss")), 0),
    )
    for place, block in enumerate(first):
        if place < at_gradient and block.kind in ("parameter", "optimizer", "buffer"):
            continue
        if block.kind == "rng" and place < at_gradient and kinds[place + 1] != "loss":
            continue
        if counts[block.kind] >= 0:
            yield replace(block, at=counts[block.kind])
        counts[block.kind] += 1
    yield from (block for block in blocks if block.step != 0)


def _unsteady_generators(a: Processes, b: Processes) -> frozenset[str]:
    """Return the generators that are in another state in two runs that are never stopped: those
    that nobody seeded."""
    found = set()
    for label in a.keys() & b.keys():
        states = {key_of(block): dict(block.items()) for block in generators(b[label])}
        for block in generators(a[label]):
            found.update(unequal(dict(block.items()), states.get(key_of(block), {})))
    return frozenset(found)


def _without(trace: Trace, names: frozenset[str]) -> Trace:
    """Return a process without the states of these generators."""
    if not names:
        return trace

    def shortened(block: Block) -> Block:
        pairs = zip(block.rows, block.items(), strict=True)
        own = [(row, digest) for row, (name, digest) in pairs if name not in names]
        rows = tuple(row for row, _ in own)
        return replace(block, rows=rows, content=b"".join(it for _, it in own))

    blocks = [
        shortened(block) if block.kind == "rng" else block for block in trace.blocks
    ]
    return replace(trace, blocks=blocks)


def _differing_modules(a: Traces, b: Traces) -> list[str]:
    """Return the modules without an optimizer that differ at the end of two runs. Attributes of
    modules do not count, since a call counter or a time of day is no state of the training."""
    return [name for name in differing_modules(a, b) if name.startswith("module ")]
