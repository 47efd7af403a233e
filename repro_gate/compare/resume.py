"""Whether a training that was stopped and went on is the same training: where each leg begins, what
its checkpoint did not restore, and whether it then repeats the steps of the run that was never
stopped. Pure.

Steps are numbered as in that run, the reference. A leg counts from 0 by itself; its place among the
steps of the reference is read from its parameters, never from a file's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from repro_gate.compare.model import STEPS, Divergence, Leg, NotRestored
from repro_gate.compare.traces import compare_runs, processes
from repro_gate.compare.unrecorded import differing_modules
from repro_gate.escape import listed
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace

Values = dict[str, bytes]  # name -> digest
GROUPS = "param_groups."  # how the names of hyperparameters begin
_MOST_PLACES = 50  # steps of the reference that are weighed where several fit
_NAMED = 3  # names that a message has


def leg_of(
    reference: Sequence[Trace],
    leg: Sequence[Trace],
    *,
    number: int,
    ended: bool,
    expected: int,
    artifacts: Sequence[Divergence] = (),
) -> Leg:
    """Return what one leg shows beside the reference.

    `number` counts from 1; the first leg begins at 0. `ended`: it went on to the end of the
    training, so steps that it lacks, or has too many, are a difference. `expected`: the step at
    which the checkpoint was first seen, taken if the parameters are those of no step.
    """
    ours = processes(reference)
    theirs = processes(leg)
    places = [0] if number == 1 else beginnings(ours, theirs)
    weighed = [
        (missing_at(ours, theirs, place), place) for place in places[-_MOST_PLACES:]
    ]
    if weighed:
        missing, begins = min(weighed, key=lambda item: (len(item[0]), -item[1]))
    else:
        begins = expected
        missing = [_no_parameters(theirs), *missing_at(ours, theirs, begins)]
    anew = number > 1 and begins == 0
    if anew:
        missing = [_anew(theirs)]
    count = max((len(trace.steps) for trace in theirs.values()), default=0)
    steps = None if ended else count
    first = [_from(trace, begins, steps) for trace in ours.values()]
    second = [
        _own_steps(trace, ours.get(label), begins, steps)
        for label, trace in theirs.items()
    ]
    compared = compare_runs(first, second, artifacts)
    found = compared.first_divergence
    names: tuple[str, ...] = ()
    if found is not None:
        found = replace(found, step=found.step + begins)
        missing = missing or list(_later(found, begins))
    elif ended and (names := differing_modules(reference, leg)):
        sentence = f"no optimizer moves them, and they differ at the end: {listed(names, _NAMED)}"
        missing = [*missing, NotRestored("ema", sentence)]
    return Leg(
        number=number,
        begins=begins,
        ends=begins + count,
        identical=compared.identical and not (anew or names),
        not_restored=tuple(missing),
        first_divergence=found,
    )


def beginnings(reference: Mapping[str, Trace], leg: Mapping[str, Trace]) -> list[int]:
    """Return the steps of the reference before which every process has the parameters with which
    the leg begins, in order; empty if there are none."""
    common = [label for label in reference if label in leg]
    found = [set(_fitting(reference[label], leg[label])) for label in common]
    return sorted(set.intersection(*found)) if found else []


def _fitting(reference: Trace, leg: Trace) -> Iterator[int]:
    wanted = boundary(leg, "parameter")
    equal = dict.fromkeys(wanted, False)
    unequal = len(equal)
    step = -1
    for block in reference.blocks:
        if block.step > step:
            if not unequal and wanted:
                yield step + 1
            step = block.step
        for name, digest in _rows(block) if block.kind == "parameter" else ():
            if name in equal:
                same = digest == wanted[name]
                unequal += equal[name] - same
                equal[name] = same
    if not unequal and wanted:
        yield min(step + 1, len(reference.steps))


def boundary(leg: Trace, kind: str) -> Values:
    """Return what a leg has of one kind right before its first step changes anything, by name."""
    found: Values = {}
    for block in leg.blocks:
        if block.step > 0 or block.kind == "gradient":
            break
        if block.kind == kind:
            found.update(_rows(block))
    return found


def state_before(reference: Trace, step: int, kind: str) -> Values:
    """Return what the reference has of one kind before a step."""
    found: Values = {}
    for block in reference.blocks:
        if block.kind == kind and block.step < step:
            found.update(_rows(block))
    return found


def missing_at(
    reference: Mapping[str, Trace], leg: Mapping[str, Trace], begins: int
) -> list[NotRestored]:
    """Return what a leg that begins at this step of the reference has not restored, each component
    of a training once, as its first process shows it."""
    found: dict[str, NotRestored] = {}
    for label in reference:
        if label in leg:
            others = {name: item for name, item in reference.items() if name != label}
            for item in _missing(reference[label], leg[label], begins, others):
                found.setdefault(item.component, item)
    return list(found.values())


def _missing(
    reference: Trace, leg: Trace, begins: int, others: Mapping[str, Trace]
) -> Iterator[NotRestored]:
    buffers = _unequal(
        state_before(reference, begins, "buffer"), boundary(leg, "buffer")
    )
    if buffers:
        yield NotRestored("buffers", f"buffers differ: {listed(buffers, _NAMED)}")
    if begins:
        yield from _optimizer(reference, leg, begins)
    yield from _hyperparameters(reference, leg, begins)
    yield from _generators(reference, leg, begins, others)
    yield from _first_batch(reference, leg, begins)


def _optimizer(reference: Trace, leg: Trace, begins: int) -> Iterator[NotRestored]:
    """Yield what the optimizer's state lacks: averages by parameter, and counts of steps."""
    ours = _without_groups(state_before(reference, begins, "optimizer"))
    theirs = _without_groups(boundary(leg, "optimizer"))
    counters = {name for name in ours if name.endswith(".step")}
    empty = {name for name in ours if name not in theirs}
    unequal = {name for name in ours if name in theirs and ours[name] != theirs[name]}
    parameters = {_owner(name) for name in ours}
    for names, what in (
        (empty - counters, "is empty"),
        (unequal - counters, "differs"),
    ):
        owners = {_owner(name) for name in names}
        if owners:
            sentence = f"optimizer state of {len(owners)} of {len(parameters)} parameters {what}"
            yield NotRestored("optimizer-state", sentence)
            break
    lost = (empty | unequal) & counters
    if lost:
        share = f"{len(lost)} of {len(counters)} parameters"
        sentence = f"the optimizer's step count of {share} is lost"
        yield NotRestored("step-count", sentence)


def _hyperparameters(
    reference: Trace, leg: Trace, begins: int
) -> Iterator[NotRestored]:
    """Yield the parameter groups in which the first step differs from the reference's. A learning
    rate that changes during the training is its scheduler's."""
    ours = _numbers(reference, begins, GROUPS)
    theirs = _numbers(leg, 0, GROUPS)
    at_first = _numbers(reference, 0, GROUPS)
    for name in ours:
        if name not in theirs or ours[name] == theirs[name]:
            continue
        field = name.split(".", 2)[-1]
        rate = field == "lr"
        words = "learning rate" if rate else field
        sentence = f"{words} {theirs[name]:g} where the reference has {ours[name]:g}"
        scheduled = rate and at_first.get(name) != ours[name]
        yield NotRestored("scheduler" if scheduled else "param-groups", sentence)


def _generators(
    reference: Trace, leg: Trace, begins: int, others: Mapping[str, Trace]
) -> Iterator[NotRestored]:
    """Yield the generators whose states differ when the first loss is computed."""
    ours = _generators_at_loss(reference, begins)
    theirs = _generators_at_loss(leg, 0)
    for name in _unequal(ours, theirs):
        owner = next(
            (
                label
                for label, other in others.items()
                if _generators_at_loss(other, begins).get(name) == theirs[name]
            ),
            None,
        )
        sentence = f"the state of the {name} generator is another one"
        if owner is not None:
            sentence = f"{leg.key} has the {name} generator of {owner}"
        yield NotRestored(f"rng:{name.split(':')[0]}", sentence)


def _first_batch(reference: Trace, leg: Trace, begins: int) -> Iterator[NotRestored]:
    due = _batches(reference, begins)
    came = _batches(leg, 0)[-len(due) :] if due else []
    if not due or not came or came[0] == due[0]:
        return
    steps = {
        block.digests: block.step
        for block in reversed(reference.blocks)
        if block.kind == "batch"
    }
    where = steps.get(came[0])
    sentence = "the first batch is none of the reference's"
    if where is not None:
        again = " again" if where < begins else ""
        sentence = f"the first batch is batch {where}{again}, not batch {begins}"
    yield NotRestored("batches", sentence)


def _later(found: Divergence, begins: int) -> Iterator[NotRestored]:
    """Yield what a divergence shows of what was not restored, where nothing differs before the
    first step."""
    at_first = found.step == begins
    if found.name == STEPS:
        yield NotRestored("step-count", found.detail)
    elif found.kind == "artifact":
        yield NotRestored("artifact", f"the artifact {found.name} differs")
    elif found.kind == "batch":
        yield NotRestored("batches", f"the batch of step {found.step} is another one")
    elif found.kind == "rng":
        sentence = (
            f"the {found.name} generator is in another state at step {found.step}"
        )
        yield NotRestored(f"rng:{found.name.split(':')[0]}", sentence)
    elif found.name.startswith(GROUPS):
        sentence = f"the learning rate of step {found.step} is another one"
        yield NotRestored("scheduler", sentence)
    elif at_first and found.kind == "gradient":
        sentence = "the first gradient differs, though loss and parameters are the same"
        yield NotRestored("gradients", sentence)
    elif found.kind == "loss":
        sentence = (
            f"the loss of step {found.step} differs, though parameters, batch and generators are "
            "the same: a torch.Generator of its own, say, or an iterator"
        )
        yield NotRestored("unrecorded", sentence)


def _anew(leg: Mapping[str, Trace]) -> NotRestored:
    """Return what a leg lacks that begins with the parameters of before the first step."""
    if any(_without_groups(boundary(trace, "optimizer")) for trace in leg.values()):
        sentence = "its parameters are those of before the first step, its optimizer has a state"
        return NotRestored("parameters", sentence)
    sentence = "it began anew: its parameters are those of before the first step"
    return NotRestored("scratch", sentence)


def _no_parameters(leg: Mapping[str, Trace]) -> NotRestored:
    count = (
        max(len(boundary(trace, "parameter")) for trace in leg.values()) if leg else 0
    )
    return NotRestored(
        "parameters", f"its {count} parameters are those of no step of the reference"
    )


def _own_steps(
    trace: Trace, reference: Trace | None, begins: int, steps: int | None
) -> Trace:
    """Return a leg without what is only there to be compared at its boundary: its state before the
    first step, batches that it skipped, and generators before the first loss."""
    blocks = [
        block
        for block in trace.blocks
        if block.step >= 0 and (steps is None or block.step < steps)
    ]
    due = None if reference is None else len(_batches(reference, begins))
    return replace(trace, blocks=list(_first_step_alike(blocks, due)))


def _from(trace: Trace, begins: int, steps: int | None) -> Trace:
    """Return the reference from a step on, counted anew; `steps` of it, or all that are left."""
    marks = trace.steps[begins:][:steps]
    blocks = [
        replace(block, step=block.step - begins)
        for block in trace.blocks
        if block.step >= begins and (steps is None or block.step < begins + steps)
    ]
    numbered = [
        msgspec.structs.replace(mark, step=place) for place, mark in enumerate(marks)
    ]
    return replace(trace, blocks=list(_first_step_alike(blocks, None)), steps=numbered)


def _first_step_alike(blocks: Sequence[Block], due: int | None) -> Iterator[Block]:
    """Yield blocks of a run; of its first step only what a leg and the reference both have: the
    last batches that were fetched, generators when a loss is computed, and what its update
    changes."""
    first = [block for block in blocks if block.step == 0]
    at_gradient = next(
        (place for place, block in enumerate(first) if block.kind == "gradient"), 0
    )
    chosen: list[Block] = []
    for place, block in enumerate(first):
        if place < at_gradient and block.kind in ("parameter", "optimizer", "buffer"):
            continue
        after = first[place + 1].kind if place + 1 < len(first) else ""
        if block.kind == "rng" and place < at_gradient and after != "loss":
            continue
        chosen.append(block)
    batches = [block for block in chosen if block.kind == "batch"]
    skipped = batches[:-due] if due else []
    kept = [block for block in chosen if not any(block is item for item in skipped)]
    counts: Counter[str] = Counter()
    for block in kept:
        yield replace(block, at=counts[block.kind])
        counts[block.kind] += 1
    yield from (block for block in blocks if block.step != 0)


def _generators_at_loss(trace: Trace, step: int) -> Values:
    """Return the states of the generators right before the first loss of a step."""
    found: Values = {}
    for block in trace.blocks:
        if block.step == step and block.kind == "rng":
            found = dict(_rows(block))
        if block.step == step and block.kind == "loss":
            return found
    return {}


def _batches(trace: Trace, step: int) -> list[bytes]:
    return [
        block.digests
        for block in trace.blocks
        if block.kind == "batch" and block.step == step
    ]


def _numbers(trace: Trace, step: int, prefix: str) -> dict[str, float]:
    """Return the numbers of a step's last optimizer block, by name."""
    found: dict[str, float] = {}
    for block in trace.blocks:
        if block.step == step and block.kind == "optimizer" and block.values:
            for row, text in zip(block.rows, block.values, strict=False):
                if row[0].startswith(prefix):
                    found[row[0]] = float.fromhex(text)
    return found


def _rows(block: Block) -> Iterable[tuple[str, bytes]]:
    digests = block.digests
    for place, row in enumerate(block.rows):
        yield row[0], digests[place * 16 : (place + 1) * 16]


def _unequal(ours: Values, theirs: Values) -> list[str]:
    return [name for name in ours if name in theirs and ours[name] != theirs[name]]


def _without_groups(state: Values) -> Values:
    return {name: item for name, item in state.items() if not name.startswith(GROUPS)}


def _owner(name: str) -> str:
    return name.rsplit(".", 1)[0]
