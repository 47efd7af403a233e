"""Decides whether a training that was stopped and resumed is the same training: at which step each
leg begins, what its checkpoint did not restore, and whether it repeats the steps of the reference,
the run that was never stopped. Pure.

Steps are numbered as in the reference. A leg itself counts from 0; the step at which it begins is
found by its parameters, never by a file's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

import msgspec

from repro_gate.compare.model import STEPS, Divergence, Leg, NotRestored
from repro_gate.compare.traces import GROUPS, compare_runs, processes
from repro_gate.compare.unrecorded import differing_modules
from repro_gate.escape import listed
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Location
from repro_gate.trace.format import SCALER
from repro_gate.trace.model import Trace

Digests = dict[str, bytes]  # by name
_MOST_PLACES = 10  # steps of the reference that are weighed where several fit
_NAMED = 3  # names that a message has
_GENERATORS = ("python", "numpy", "torch", "cuda")  # that are components of their own


def leg_of(
    reference: Sequence[Trace],
    leg: Sequence[Trace],
    *,
    number: int,
    reached_end: bool,
    expected: int,
    is_cut: bool = False,
    artifacts: Sequence[Divergence] = (),
    again: Sequence[Trace] = (),
) -> Leg:
    """Compare one leg with the reference. `number` counts from 1; the first leg begins at step 0.

    `reached_end`: the leg ran to the end of the training, so missing or extra steps are a
    difference. `is_cut`: `train.steps` stopped the reference, so extra steps are left out. In a leg
    that was stopped, each process is compared as far as it came. `expected`: the step at which the
    checkpoint was first seen, used if the parameters fit no step. `again` is a repeat of the
    reference.
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
    first = []
    second = []
    for label in ours if reached_end else [name for name in ours if name in theirs]:
        steps = _common(ours[label], theirs.get(label), begins, reached_end, is_cut)
        batch_count = len(_own_batches(ours[label], begins))
        first.append(_part(ours[label], begins, steps, batch_count))
        if label in theirs:
            second.append(_part(theirs[label], 0, steps, batch_count))
    second += [theirs[label] for label in theirs if label not in ours]
    compared = compare_runs(first, second, artifacts)
    found = compared.first_divergence
    lost: list[str] = []
    if found is None and reached_end:
        unsteady = _differing_modules(reference, again)
        lost = [it for it in _differing_modules(reference, leg) if it not in unsteady]
    if found is not None and found.kind != "artifact":
        found = replace(found, step=found.step + begins)
    if found is not None:
        missing = missing or list(_later(found, begins, reference))
        if all(item.component == "unrecorded" for item in missing):
            missing += _only_drawn_by(leg, reference)
    if lost:
        sentence = f"no optimizer moves them, and they differ at the end: {listed(lost, _NAMED)}"
        missing = [*missing, NotRestored("ema", sentence)]
    return Leg(
        number=number,
        begins=begins,
        ends=begins + max((len(trace.steps) for trace in second), default=0),
        identical=compared.identical and not (anew or lost),
        not_restored=tuple(missing),
        first_divergence=found,
    )


def _common(
    reference: Trace, leg: Trace | None, begins: int, reached_end: bool, is_cut: bool
) -> int | None:
    """Return how many steps of a leg's process are compared; None: all, and all remaining steps of
    the reference."""
    left = max(len(reference.steps) - begins, 0)
    count = 0 if leg is None else len(leg.steps)
    if count > left and not is_cut:
        return count  # it goes on beyond the reference's end
    return None if reached_end and count <= left else min(count, left)


def _differing_modules(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[str, ...]:
    """Return the modules without an optimizer that differ at the end of two runs. Attributes of
    modules do not count, since a call counter or a time of day is no state of the training."""
    runs = (
        [
            replace(trace, unmoved=[row for row in trace.unmoved if row[0] == "module"])
            for trace in traces
        ]
        for traces in (a, b)
    )
    return differing_modules(*runs)


def beginnings(reference: Mapping[str, Trace], leg: Mapping[str, Trace]) -> list[int]:
    """Return the steps of the reference before which every process has the parameters with which
    the leg begins, in order; empty if there are none."""
    common = [label for label in reference if label in leg]
    found = [set(_fitting(reference[label], leg[label])) for label in common]
    return sorted(set.intersection(*found)) if found else []


def _fitting(reference: Trace, leg: Trace) -> Iterator[int]:
    """Yield the steps of one process before which it has the parameters with which a leg begins;
    where a training says itself what is recorded, and nothing before its first step, the steps that
    recorded what that one did."""
    wanted = boundary(leg, "parameter")
    if not wanted:
        own = [item for item in leg.blocks if item.kind in ("loss", "parameter")][:1]
        for block in reference.blocks if own else ():
            if (block.kind, block.digests) == (own[0].kind, own[0].digests):
                yield block.step
        return
    unequal = set(wanted)
    done = 0  # steps whose blocks were all looked at
    for block in reference.blocks:
        if block.step >= done:
            if not unequal:
                yield done
            done = block.step + 1
        for name, digest in block.items() if block.kind == "parameter" else ():
            if name in wanted:
                (unequal.discard if digest == wanted[name] else unequal.add)(name)
    if not unequal:
        yield min(done, len(reference.steps))


def boundary(leg: Trace, kind: str) -> Digests:
    """Return a leg's state of one kind right before its first step changes anything, by name."""
    first = list(takewhile(lambda block: block.step <= 0, leg.blocks))
    kinds = [block.kind for block in first]
    if "gradient" in kinds:
        before = first[: kinds.index("gradient")]
    else:  # what there is of the step may come after its update
        before = [block for block in first if block.step < 0]
    found: Digests = {}
    for block in before:
        if block.kind == kind:
            found.update(block.items())
    return found


def state_before(reference: Trace, step: int, kind: str) -> Digests:
    """Return the reference's state of one kind before a step."""
    found: Digests = {}
    for block in reference.blocks:
        if block.kind == kind and block.step < step:
            found.update(block.items())
    return found


def missing_at(
    reference: Mapping[str, Trace], leg: Mapping[str, Trace], begins: int
) -> list[NotRestored]:
    """Return what a leg that begins at this step has not restored: each component once, as the
    first process with it shows it."""
    found: dict[str, NotRestored] = {}
    for label in reference:
        if label in leg:
            for item in _missing(reference[label], leg[label], begins, reference):
                found.setdefault(item.component, item)
    return list(found.values())


def _missing(
    reference: Trace, leg: Trace, begins: int, ranks: Mapping[str, Trace]
) -> Iterator[NotRestored]:
    buffers = unequal(
        state_before(reference, begins, "buffer"), boundary(leg, "buffer")
    )
    if buffers:
        yield NotRestored("buffers", f"buffers differ: {listed(buffers, _NAMED)}")
    if begins:
        yield from _optimizer(reference, leg, begins)
    yield from _hyperparameters(reference, leg, begins)
    if unequal(_scaler(reference, begins), _scaler(leg, 0)):
        sentence = (
            "the gradient scaler has another scale, or another count of good steps"
        )
        yield NotRestored("scaler", sentence)
    yield from _generators(reference, leg, begins, ranks)
    yield from _first_batch(reference, leg, begins)


def _optimizer(reference: Trace, leg: Trace, begins: int) -> Iterator[NotRestored]:
    """Yield what is not restored of the optimizer's state: averages by parameter, and step
    counts."""
    ours = _by_parameter(state_before(reference, begins, "optimizer"))
    theirs = _by_parameter(boundary(leg, "optimizer"))
    counters = {name for name in ours if name.endswith(".step")}
    empty = {name for name in ours if name not in theirs}
    differing = set(unequal(ours, theirs))
    parameters = {_owner(name) for name in ours}
    for names, what in (
        (empty - counters, "is empty"),
        (differing - counters, "differs"),
    ):
        owners = {_owner(name) for name in names}
        if owners:
            sentence = f"optimizer state of {len(owners)} of {len(parameters)} parameters {what}"
            yield NotRestored("optimizer-state", sentence)
            break
    lost = (empty | differing) & counters
    if lost:
        share = f"{len(lost)} of {len(counters)} parameters"
        sentence = f"the optimizer's step count of {share} is lost"
        yield NotRestored("step-count", sentence)


def _hyperparameters(
    reference: Trace, leg: Trace, begins: int
) -> Iterator[NotRestored]:
    """Yield the parameter groups whose hyperparameters differ in the first step. A learning rate
    that changes during the training belongs to the scheduler."""
    ours = _numbers(reference, begins)
    theirs = _numbers(leg, 0)
    at_first = _numbers(reference, 0)
    for name in unequal(ours, theirs):
        field = name.split(".", 2)[-1]
        rate = field == "lr"
        words = "learning rate" if rate else field
        sentence = f"{words} {theirs[name]:g} where the reference has {ours[name]:g}"
        scheduled = rate and at_first.get(name) != ours[name]
        yield NotRestored("scheduler" if scheduled else "param-groups", sentence)


def _generators(
    reference: Trace, leg: Trace, begins: int, ranks: Mapping[str, Trace]
) -> Iterator[NotRestored]:
    """Yield the generators whose states differ when the first loss is computed."""
    ours = _generators_at_loss(reference, begins)
    theirs = _generators_at_loss(leg, 0)
    for name in unequal(ours, theirs):
        owner = next(
            (
                label
                for label, other in ranks.items()
                if _generators_at_loss(other, begins).get(name) == theirs[name]
            ),
            None,
        )
        sentence = f"the state of the {name} generator differs"
        if owner is not None:
            sentence = f"{leg.key} has the {name} generator of {owner}"
        yield NotRestored(_of_generator(name), sentence)


def _of_generator(name: str) -> str:
    """Return the component that a generator is, by the name that a trace gives it."""
    kind = name.split(":")[0]
    return f"rng:{kind}" if kind in _GENERATORS else "unrecorded"


def _first_batch(reference: Trace, leg: Trace, begins: int) -> Iterator[NotRestored]:
    expected = _own_batches(reference, begins)
    came = batches(leg, 0)[-len(expected) :] if expected else []
    if not expected or not came or came[0] == expected[0]:
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


def _later(
    found: Divergence, begins: int, reference: Sequence[Trace]
) -> Iterator[NotRestored]:
    """Yield what a divergence shows of what was not restored, where nothing differs before the
    first step."""
    at_first = found.step == begins
    if found.name == STEPS:
        yield NotRestored("step-count", found.detail)
    elif found.kind == "artifact":
        yield NotRestored("artifact", f"the artifact {found.name} differs")
    elif found.kind == "batch":
        yield NotRestored("batches", f"the batch of step {found.step} differs")
    elif found.kind == "rng":
        sentence = (
            f"the {found.name} generator is in another state at step {found.step}"
        )
        yield NotRestored(_of_generator(found.name), sentence)
    elif found.name.startswith(GROUPS):
        sentence = f"the learning rate of step {found.step} differs"
        yield NotRestored("scheduler", sentence)
    elif at_first and found.kind == "gradient":
        sentence = "the first gradient differs, though loss and parameters are the same"
        yield NotRestored("gradients", sentence)
    elif found.kind == "loss":
        same = "parameters, batch and generators"
        guess = "a torch.Generator of its own, say, or an iterator"
        if not any(batches(trace, found.step) for trace in reference):
            same = "parameters and generators"
            guess = "a batch that was made before the checkpoint, say"
        sentence = f"the loss of step {found.step} differs, though {same} are the same: {guess}"
        yield NotRestored("unrecorded", sentence)


def _only_drawn_by(
    leg: Sequence[Trace], reference: Sequence[Trace]
) -> list[NotRestored]:
    """Return the lines at which a leg draws from the operating system's entropy and the reference
    does not: they run only in a resumed training, and no seed reaches them."""
    drawn, known = (
        dict.fromkeys(
            (it.source, it.file, it.line) for trace in run for it in trace.drawn
        )
        for run in (leg, reference)
    )
    lines = [line for line in drawn if line not in known][:_MOST_PLACES]
    if not lines:
        return []
    sources = listed(list(dict.fromkeys(source for source, _, _ in lines)), _NAMED)
    sentence = f"only the resumed training draws from the operating system's entropy ({sources})"
    places = tuple(Location(file, line) for _, file, line in lines)
    return [NotRestored("unrecorded", sentence, places)]


def _anew(leg: Mapping[str, Trace]) -> NotRestored:
    """Return what a leg lacks that begins with the parameters of before the first step."""
    if any(_by_parameter(boundary(trace, "optimizer")) for trace in leg.values()):
        sentence = "its parameters are those of before the first step, its optimizer has a state"
        return NotRestored("parameters", sentence)
    sentence = (
        "its parameters are those of before the first step: it began anew, or its checkpoint is "
        "that old"
    )
    return NotRestored("scratch", sentence)


def _no_parameters(leg: Mapping[str, Trace]) -> NotRestored:
    count = max((len(boundary(it, "parameter")) for it in leg.values()), default=0)
    if not count:
        return NotRestored("unrecorded", "its first step is none of the reference's")
    return NotRestored(
        "parameters", f"its {count} parameters are those of no step of the reference"
    )


def _part(trace: Trace, begins: int, steps: int | None, batch_count: int) -> Trace:
    """Return a process from a step on, counted anew: `steps` of it, or all that are left; without
    its state before them. `batch_count`: how many batches of its first step are compared."""
    marks = trace.steps[begins:][:steps]
    blocks = [
        replace(block, step=block.step - begins)
        for block in trace.blocks
        if block.step >= begins and (steps is None or block.step < begins + steps)
    ]
    numbered = [
        msgspec.structs.replace(mark, step=place) for place, mark in enumerate(marks)
    ]
    return replace(
        trace, blocks=list(_first_step_alike(blocks, batch_count)), steps=numbered
    )


def _first_step_alike(blocks: Sequence[Block], batch_count: int) -> Iterator[Block]:
    """Yield blocks of a run; of its first step only what a leg and the reference both have: the
    last batches that were fetched, generators when a loss is computed, and what its update
    changes."""
    first = [block for block in blocks if block.step == 0]
    at_gradient = next(
        (place for place, block in enumerate(first) if block.kind == "gradient"), 0
    )
    # The first batches are left out, so that as many remain as are compared.
    left_out = sum(block.kind == "batch" for block in first) - batch_count
    counts = Counter(batch=-max(left_out, 0))
    for place, block in enumerate(first):
        if place < at_gradient and block.kind in ("parameter", "optimizer", "buffer"):
            continue
        after = first[place + 1].kind if place + 1 < len(first) else ""
        if block.kind == "rng" and place < at_gradient and after != "loss":
            continue
        if counts[block.kind] >= 0:
            yield replace(block, at=counts[block.kind])
        counts[block.kind] += 1
    yield from (block for block in blocks if block.step != 0)


def _generators_at_loss(trace: Trace, step: int) -> Digests:
    """Return the states of the generators right before the first loss of a step."""
    found: Digests = {}
    for block in trace.blocks:
        if block.step == step and block.kind == "rng":
            found.update(block.items())
        if block.step == step and block.kind == "loss":
            return found
    return {}


def blocks_at(trace: Trace, step: int, kind: str) -> list[Block]:
    """Return the blocks of one kind of a step, in order."""
    return [item for item in trace.blocks if (item.step, item.kind) == (step, kind)]


def batches(trace: Trace, step: int) -> list[bytes]:
    """Return the digests of the batches of a step, in order."""
    return [block.digests for block in blocks_at(trace, step, "batch")]


def _scaler(trace: Trace, step: int) -> Digests:
    """Return what the gradient scaler had in a step."""
    found: Digests = {}
    for block in blocks_at(trace, step, "optimizer"):
        found.update(it for it in block.items() if it[0].startswith(SCALER))
    return found


def _own_batches(reference: Trace, step: int) -> list[bytes]:
    """Return the last batches of a step, as many as the step with the fewest has. Those of an
    evaluation before it, and one that a loader fetches ahead, came in the reference alone."""
    places = Counter(block.step for block in reference.blocks if block.kind == "batch")
    fewest = min(
        (places[place] for place in places if place < len(reference.steps)), default=0
    )
    came = batches(reference, step)
    return came[max(len(came) - fewest, 0) :]


def _numbers(trace: Trace, step: int) -> dict[str, float]:
    """Return the hyperparameters that a step recorded last, by name."""
    found: dict[str, float] = {}
    for block in blocks_at(trace, step, "optimizer"):
        for row, text in zip(block.rows, block.values, strict=False):
            if row[0].startswith(GROUPS):
                found[row[0]] = float.fromhex(text)
    return found


def unequal(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    """Return the names under which both have something, and not the same."""
    return [name for name in ours if name in theirs and ours[name] != theirs[name]]


def _by_parameter(state: Digests) -> Digests:
    """Return an optimizer's state without what belongs to no parameter."""
    others = (GROUPS, SCALER)
    return {name: item for name, item in state.items() if not name.startswith(others)}


def _owner(name: str) -> str:
    return name.rsplit(".", 1)[0]
