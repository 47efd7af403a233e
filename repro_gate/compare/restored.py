"""Names what the checkpoint of a resumed training did not restore, by what a leg has recorded when
it begins, beside what the reference, the run that was never stopped, had before that step. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from repro_gate.compare.distances import Processes, Traces
from repro_gate.compare.model import STEPS, Divergence, NotRestored
from repro_gate.compare.traces import GROUPS
from repro_gate.escape import counted, listed
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Location
from repro_gate.trace.format import SCALER
from repro_gate.trace.model import Trace

Digests = dict[str, bytes]  # by name
NAMED = 3  # names that a message has
_LINES = 10  # of code that a message has
_EMPTY = "is empty"
_UNKNOWN_BATCH = "the first batch is none of the reference's"
_GENERATORS = ("python", "numpy", "torch", "cuda")  # that are components of their own


@dataclass(frozen=True)
class Start:
    """A process of a leg and the same one of the reference, with the step of the reference at which
    the leg begins."""

    reference: Trace
    leg: Trace
    begins: int

    def states(self, kind: str) -> tuple[Digests, Digests]:
        """Return the reference's state of one kind before that step, and the leg's."""
        before: Digests = {}
        for block in self.reference.blocks:
            if block.kind == kind and block.step < self.begins:
                before.update(block.items())
        return before, boundary(self.leg, kind)

    @cached_property
    def passes(self) -> int:
        """Return how many losses of the leg's first step are compared, its last: a checkpoint
        between two of an update leaves the leg fewer of them."""
        count = len(blocks_at(self.reference, self.begins, "loss"))
        own = len(blocks_at(self.leg, 0, "loss")) if self.leg.steps else 0
        return min(count, own or count)

    @cached_property
    def batches(self) -> list[bytes]:
        """Return the last batches of the reference's step, as many as the step with the fewest has,
        and of those the ones of its last `passes` losses. Those of an evaluation before it, and one
        that a loader fetches ahead, came in the reference alone."""
        trace = self.reference
        counts = Counter(block.step for block in trace.blocks if block.kind == "batch")
        within = (counts[step] for step in counts if step < len(trace.steps))
        came = batches(trace, self.begins)
        count = len(blocks_at(trace, self.begins, "loss"))
        own = min(len(came), min(within, default=0))
        own = own * self.passes // count if count else own
        return came[len(came) - own :]

    @cached_property
    def idle_generators(self) -> frozenset[str]:
        """Return the generators from which the reference draws nothing from this step on: whatever
        their state, it is of no effect."""
        states = defaultdict(list)
        for block in generators(self.reference):
            for name, digest in block.items() if block.step >= self.begins - 1 else ():
                states[name].append(digest)
        return frozenset(
            name for name, found in states.items() if len(set(found)) < len(found[:2])
        )


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


def generators(trace: Trace) -> list[Block]:
    """Return the states of the generators."""
    return [block for block in trace.blocks if block.kind == "rng"]


def missing_at(reference: Processes, leg: Processes, begins: int) -> list[NotRestored]:
    """Return what a leg that begins at this step has not restored: each component once, as the
    first process with it shows it."""
    found = dict[str, NotRestored]()
    for label, trace in reference.items():
        if label in leg:
            for item in _missing(Start(trace, leg[label], begins), reference):
                found.setdefault(item.component, item)
    return list(found.values())


def _missing(start: Start, ranks: Processes) -> Iterator[NotRestored]:
    if buffers := unequal(*start.states("buffer")):
        yield NotRestored("buffers", f"buffers differ: {listed(buffers, NAMED)}")
    lost = list(_optimizer(start)) if start.begins else []
    numbers = list(_hyperparameters(start))
    if lost and lost[0].message.endswith(_EMPTY):
        # what its state_dict holds beside the averages is lost with them
        words = [item.message for item in (*lost, *numbers)]
        yield NotRestored("optimizer-state", listed(words, NAMED))
    else:
        yield from (*lost, *numbers)
    if unequal(_scaler(start.reference, start.begins), _scaler(start.leg, 0)):
        sentence = (
            "the gradient scaler has another scale, or another count of good steps"
        )
        yield NotRestored("scaler", sentence)
    first = list(_first_batch(start))
    drawn = list(_generators(start, ranks))
    # a batch that the reference had shows where the data went on, another one what was drawn
    is_known = not any(item.message == _UNKNOWN_BATCH for item in first)
    yield from (*first, *drawn) if is_known else (*drawn, *first)


def _optimizer(start: Start) -> Iterator[NotRestored]:
    """Yield what is not restored of the optimizer's state: averages by parameter, and step
    counts."""
    ours, theirs = map(_by_parameter, start.states("optimizer"))
    counters = {name for name in ours if name.endswith(".step")}
    empty = ours.keys() - theirs.keys() - counters
    differing = set(unequal(ours, theirs))
    every = counted(len(set(map(_owner, ours))), "parameter")
    for names, what in ((empty, _EMPTY), (differing - counters, "differs")):
        if names:
            sentence = (
                f"optimizer state of {len(set(map(_owner, names)))} of {every} {what}"
            )
            yield NotRestored("optimizer-state", sentence)
            break
    lost = counters & (differing if empty else differing | (ours.keys() - theirs))
    if lost:
        share = f"{len(lost)} of {counted(len(counters), 'parameter')}"
        sentence = f"the optimizer's step count of {share} is lost"
        yield NotRestored("step-count", sentence)


def _hyperparameters(start: Start) -> Iterator[NotRestored]:
    """Yield the parameter groups whose hyperparameters differ in the first step. A learning rate
    that changes during the training belongs to the scheduler."""
    ours = _numbers(start.reference, start.begins)
    theirs = _numbers(start.leg, 0)
    at_first = _numbers(start.reference, 0)
    for name in unequal(ours, theirs):
        field = name.split(".", 2)[-1]
        rate = field == "lr"
        words = "learning rate" if rate else field
        sentence = f"{words} {theirs[name]:g} where the reference has {ours[name]:g}"
        scheduled = rate and at_first.get(name) != ours[name]
        yield NotRestored("scheduler" if scheduled else "param-groups", sentence)


def _generators(start: Start, ranks: Processes) -> Iterator[NotRestored]:
    """Yield the generators whose states differ when the first loss is computed, and from which the
    reference draws later."""
    begins, passes = start.begins, start.passes
    ours = _generators_at_loss(start.reference, begins, passes)
    theirs = _generators_at_loss(start.leg, 0, passes)
    for name in unequal(ours, theirs):
        if name in start.idle_generators:
            continue
        sentence = f"the state of the {name} generator differs"
        for label, other in ranks.items():
            states = _generators_at_loss(other, begins, passes)
            if states.get(name) == theirs[name]:
                sentence = f"{start.leg.key} has the {name} generator of {label}"
                break
        yield NotRestored(_of_generator(name), sentence)


def _generators_at_loss(trace: Trace, step: int, passes: int) -> Digests:
    """Return the states of the generators right before the first of a step's last `passes`
    losses."""
    found: Digests = {}
    left_out = len(blocks_at(trace, step, "loss")) - passes
    for block in trace.blocks:
        if block.step == step and block.kind == "rng":
            found.update(block.items())
        if block.step == step and block.kind == "loss":
            left_out -= 1
            if left_out < 0:
                return found
    return {}


def _of_generator(name: str) -> str:
    """Return the component that a generator is, by the name that a trace gives it."""
    kind = name.split(":")[0]
    return f"rng:{kind}" if kind in _GENERATORS else "unrecorded"


def _first_batch(start: Start) -> Iterator[NotRestored]:
    expected = start.batches
    came = batches(start.leg, 0)[-len(expected) :] if expected else []
    if not came or came[0] == expected[0]:
        return
    step = {
        block.digests: block.step
        for block in reversed(start.reference.blocks)
        if block.kind == "batch"
    }.get(came[0])
    sentence = _UNKNOWN_BATCH
    if step is not None:
        again = " again" if step < start.begins else ""
        sentence = f"the first batch is batch {step}{again}, not batch {start.begins}"
    yield NotRestored("batches", sentence)


def later(found: Divergence, begins: int, reference: Traces) -> Iterator[NotRestored]:
    """Yield what a divergence shows of what was not restored, if nothing differs before the first
    step."""
    step = found.step
    if found.name == STEPS:
        yield NotRestored("step-count", found.detail)
    elif found.kind == "artifact":
        yield NotRestored("artifact", f"the artifact {found.name} differs")
    elif found.kind == "batch":
        yield NotRestored("batches", f"the batch of step {step} differs")
    elif found.kind == "rng":
        sentence = f"the {found.name} generator is in another state at step {step}"
        yield NotRestored(_of_generator(found.name), sentence)
    elif found.name.startswith(GROUPS):
        yield NotRestored("scheduler", f"the learning rate of step {step} differs")
    elif step == begins and found.kind == "gradient":
        sentence = "the first gradient differs, though loss and parameters are the same"
        yield NotRestored("gradients", sentence)
    elif found.kind == "loss":
        same = "parameters, batch and generators"
        guess = "a torch.Generator of its own, say, a counter, or an iterator"
        if not any(batches(trace, step) for trace in reference):
            same = "parameters and generators"
            guess = "a batch that was made before the checkpoint, say"
        rows = (row for trace in reference for row in trace.unmoved)
        modules = dict.fromkeys(name for what, name, _ in rows if what == "module")
        if modules:
            names = listed(list(modules), NAMED)
            guess = f"a model that no optimizer moves ({names}), {guess}"
        sentence = (
            f"the loss of step {step} differs, though {same} are the same: {guess}"
        )
        yield NotRestored("unrecorded", sentence)


def drawn_by_leg(leg: Traces, reference: Traces) -> Iterator[NotRestored]:
    """Yield the lines at which a leg draws from the operating system's entropy and the reference
    does not: they run only in a resumed training, and no seed reaches them."""
    drawn, by_reference = (
        dict.fromkeys(
            (it.source, it.file, it.line) for trace in run for it in trace.drawn
        )
        for run in (leg, reference)
    )
    lines = [line for line in drawn if line not in by_reference][:_LINES]
    if lines:
        sources = listed(list(dict.fromkeys(source for source, _, _ in lines)), NAMED)
        sentence = "only the resumed training draws from the operating system's entropy"
        places = tuple(Location(file, line) for _, file, line in lines)
        yield NotRestored("unrecorded", f"{sentence} ({sources})", places)


def began_anew(leg: Processes) -> NotRestored:
    """Return what a leg lacks that begins with the parameters of before the first step."""
    are = "its parameters are those of before the first step"
    if any(_by_parameter(boundary(trace, "optimizer")) for trace in leg.values()):
        return NotRestored("parameters", f"{are}, its optimizer has a state")
    return NotRestored(
        "scratch", f"{are}: it began anew, or its checkpoint is that old"
    )


def no_parameters(reference: Processes, leg: Processes, begins: int) -> NotRestored:
    """Return what a leg lacks that has the parameters of no step: those that are not as they were
    before `begins`."""
    count = max(
        (len(boundary(trace, "parameter")) for trace in leg.values()), default=0
    )
    if not count:
        return NotRestored("unrecorded", "its first step is none of the reference's")
    names = dict.fromkeys(
        name
        for label in reference.keys() & leg.keys()
        for name in unequal(
            *Start(reference[label], leg[label], begins).states("parameter")
        )
    )
    every = counted(count, "parameter", "are")
    sentence = f"its {every} of no step of the reference"
    if 0 < len(names) < count:
        sentence = (
            f"{len(names)} of its {every} not as they were before step {begins}: "
            f"{listed(list(names), NAMED)}"
        )
    return NotRestored("parameters", sentence)


def blocks_at(trace: Trace, step: int, kind: str) -> list[Block]:
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


def _numbers(trace: Trace, step: int) -> dict[str, float]:
    """Return the hyperparameters that a step recorded last, by name."""
    found = {}
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
