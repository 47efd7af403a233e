"""Whether another way of training comes to the same: bit for bit, or within a measured tolerance.
Pure.

The tolerance is how far rounding alone carries each tensor at each step. One more run of the
reference shows it, whose initial weights differ in their last bit (the idea of TTrace, arXiv
2506.09280). Adaptive optimizers hide a gradient of a wrong scale, so the first gradient is compared
before all else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from repro_gate.compare.distances import gap, measurements
from repro_gate.compare.model import Apart, Equivalence
from repro_gate.compare.resume import Digests, batches, state_before, unequal
from repro_gate.compare.traces import processes
from repro_gate.trace.fields import Measured
from repro_gate.trace.format import unwrapped
from repro_gate.trace.model import Trace

ROUNDINGS = 30.0  # as many times what rounding alone does are still the same training
KINDS = ("gradient", "parameter")  # what the probe measures of another way
_MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # bits
_LEFT_OUT = 8  # of as many elements of a parameter, the largest difference is left out
_EARLY = 32  # steps in which every difference counts
# roundings: a difference that is as large when it first shows is no drift
_JUMP = 300.0
# Rounding that has grown as much since the first step says nothing any more.
_AMPLIFIED = 100.0
_SAME = 0.01  # two scales of a gradient that differ by less are one

_ORDER = ("gradient", "loss", "parameter")  # in which a step has them

Place = tuple[int, str, str]  # step, kind, name
Moment = tuple[int, str]  # step, kind
Traces = Mapping[str, Trace]  # of the processes of a run


@dataclass(frozen=True)
class Rounding:
    """What rounding alone does: to each tensor, as the L2 norm of its difference; to the median
    tensor of a step and kind, relative to its norm; and to the losses. `until`: the first step
    that is not compared any more."""

    distances: Mapping[Place, float]
    relative: Mapping[Moment, float]
    until: float
    losses: Mapping[int, float]


def steps_to_keep(steps: int, every: int, most: int) -> tuple[int, ...]:
    """Return the steps at which tensors are measured: the first, the last, and powers of two
    between them, of those that are recorded; `most` at most."""
    powers = [0, *(1 << power for power in range(steps.bit_length()))]
    recorded = [step for step in powers if step < steps and step % every == 0]
    last = (steps - 1) // every * every
    return tuple(dict.fromkeys((*recorded[: max(most - 1, 1)], last)))[: max(most, 1)]


def unmatched(reference: Sequence[Trace], other: Sequence[Trace]) -> list[str]:
    """Return the parameters of the reference that the other way has not, by name, type and
    shape."""
    theirs = {row for trace in other for row in _parameters(trace)}
    ours = dict.fromkeys(row for trace in reference for row in _parameters(trace))
    return [row[0] for row in ours if row not in theirs]


def _parameters(trace: Trace) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for kind, rows in trace.tables:
        if kind == "parameter":
            yield from ((unwrapped(name), *rest) for name, *rest in rows)  # type: ignore[misc]


def equivalence_of(
    name: str,
    reference: Sequence[Trace],
    other: Sequence[Trace],
    perturbed: Sequence[Trace] | None = None,
) -> Equivalence:
    """Return how another way of training compares with the reference: within the rounding that the
    `perturbed` run shows, or bit for bit where there is none."""
    ours = processes(reference)
    theirs = processes(other)
    rounding = None if perturbed is None else rounding_of(perturbed)
    apart = [*_initially(ours, theirs)]
    if not apart and rounding is None:
        apart = [*_unequal(ours, theirs)]
    elif not apart and rounding:
        apart = [*_far(ours, theirs, rounding)]
    until = math.inf if rounding is None else rounding.until
    first = next(filter(_is_beyond, apart), None)
    if first is not None and _drifts(first):
        until = first.step
        apart = [item for item in apart if item.step < until]
        first = None
    numbers = [item for item in apart if item.roundings is not None]
    taken = {len(trace.steps) for trace in theirs.values()}
    due = max(len(trace.steps) for trace in ours.values())
    detail = ""
    if taken != {due}:
        listed = " and ".join(map(str, sorted(taken)))
        detail = f"it takes {listed} steps, the reference {due}"
    equivalent = first is None and not detail
    return Equivalence(
        name=name,
        compare="bitwise" if perturbed is None else "rounding",
        equivalent=equivalent,
        steps=int(min(due, until)),
        worst=max(numbers, key=lambda item: item.roundings or 0.0, default=None),
        first=first,
        detail=detail,
        likely="" if equivalent else _likely(ours, theirs, first),
    )


def _is_beyond(item: Apart) -> bool:
    return item.roundings is None or item.roundings > ROUNDINGS


def _drifts(first: Apart) -> bool:
    """Return whether the first that is too far apart may be chance: late, and no jump. Rounding may
    turn a ReLU on in one run and not in another, and training then amplifies that."""
    late = first.step >= _EARLY and first.roundings is not None
    return late and (first.roundings or 0.0) < _JUMP


def _initially(ours: Traces, theirs: Traces) -> Iterator[Apart]:
    """Yield the parameters that differ before the first step."""
    for own, other in _pairs(ours, theirs):
        states = [_unwrapped(state_before(it, 0, "parameter")) for it in (own, other)]
        for name in unequal(*states):
            yield Apart(step=-1, kind="parameter", name=name)


def _unequal(ours: Traces, theirs: Traces) -> Iterator[Apart]:
    """Yield what differs in any bit: the first gradient, then losses and parameters. Losses of
    another number of microbatches are left out: they cannot be the same bits."""
    moments = {label: _moments(trace) for label, trace in ours.items()}
    first = next(iter(moments.values()))
    for label, trace in theirs.items():
        before = moments.get(label, first)
        after = _moments(trace)
        later = [(step, kind) for step, kind in before if kind in ("loss", "parameter")]
        for step, kind in ((0, "gradient"), *sorted(later)):
            a = before.get((step, kind), {})
            b = after.get((step, kind), {})
            if kind == "parameter" or a.keys() == b.keys():
                for name in unequal(a, b):
                    yield Apart(step=step, kind=kind, name=name)


def _pairs(ours: Traces, theirs: Traces) -> Iterator[tuple[Trace, Trace]]:
    """Yield each process of the other way with the one of the reference that it is compared with:
    that of its rank, else the first."""
    first = next(iter(ours.values()))
    for label, trace in theirs.items():
        yield ours.get(label, first), trace


def _moments(trace: Trace) -> dict[Moment, Digests]:
    """Return the digests of each step and kind, by name; of losses, with their number."""
    found: dict[Moment, Digests] = defaultdict(dict)
    for block in trace.blocks:
        digests = _unwrapped(dict(block.items()))
        if block.kind == "loss":
            digests = {f"{name} {block.at}": item for name, item in digests.items()}
        found[block.step, block.kind].update(digests)
    return found


def _unwrapped(digests: Digests) -> Digests:
    return {unwrapped(name): digest for name, digest in digests.items()}


def _far(ours: Traces, theirs: Traces, rounding: Rounding) -> Iterator[Apart]:
    """Yield how far the other way is from the reference, in multiples of what rounding does: the
    first gradient, then losses and parameters by step."""
    distances: dict[Place, float] = {}
    for item in _measured(theirs):
        place = _place(item)
        distances[place] = max(distances.get(place, 0.0), distance(item))
    rows = [
        (place, far, rounding.distances[place])
        for place, far in distances.items()
        if math.isfinite(rounding.distances.get(place, math.inf))
    ]
    rows += _gaps_of_losses(ours, theirs, rounding)
    rows = [it for it in rows if it[0][0] < rounding.until or it[0][1] == "gradient"]
    rows.sort(key=lambda row: (row[0][0], _ORDER.index(row[0][1])))
    for (step, kind, name), far, limit in rows:
        count = far / limit if limit else math.inf if far else 0.0
        yield Apart(step=step, kind=kind, name=name, roundings=count)


def _measured(traces: Traces) -> Iterator[Measured]:
    """Yield the distances of the first gradient and of parameters, after each step that a process
    took."""
    for label, item, _ in measurements(traces):
        is_first = item.kind == "gradient" and item.step == 0
        is_taken = item.step < len(traces[label].steps)
        if is_first or (item.kind == "parameter" and is_taken):
            yield item


def _place(item: Measured) -> Place:
    return item.step, item.kind, item.name


def distance(item: Measured) -> float:
    """Return the L2 norm of a tensor's difference; of a parameter's without its few largest
    elements. Where a gradient is next to nothing rounding may turn its sign, and Adam then moves
    that element by a whole step the other way."""
    if item.l2 is None or item.max_abs is None:
        return math.inf
    left_out = (
        0 if item.kind == "gradient" else min(math.prod(item.shape) // _LEFT_OUT, 4)
    )
    return math.sqrt(max(item.l2**2 - left_out * item.max_abs**2, 0.0))


def rounding_of(perturbed: Sequence[Trace]) -> Rounding:
    """Return what rounding does to each tensor, from the run that shows it.

    It is half a unit in the last place of the tensor's largest number for each element at least,
    and what it was at an earlier step. A tensor may be near by accident, above all one of few
    elements: it is the median of all, relative to their norms, at least.
    """
    traces = processes(perturbed)
    rows: dict[Place, Measured] = {}
    found: dict[Place, float] = {}
    for item in _measured(traces):
        place = _place(item)
        least = math.sqrt(math.prod(item.shape)) * half_ulp(item.dtype, item.largest)
        far = max(math.inf if item.l2 is None else item.l2, least)
        found[place] = max(found.get(place, 0.0), far)
        rows[place] = item
    shares: dict[Moment, list[float]] = defaultdict(list)
    for place, far in found.items():
        if norm := rows[place].reference_l2:
            shares[place[:2]].append(far / norm)
    relative = {moment: median(values) for moment, values in shares.items()}
    middle = {
        moment: median(far for place, far in found.items() if place[:2] == moment)
        for moment in relative
    }
    earlier: dict[tuple[str, str], float] = {}
    for place in sorted(found):
        item = rows[place]
        moment = place[:2]
        pooled = relative.get(moment, 0.0) * (item.reference_l2 or 0.0)
        far = max(found[place], pooled, earlier.get(place[1:], 0.0))
        found[place] = earlier[place[1:]] = far or middle.get(moment, 0.0)
    return Rounding(found, relative, _until(relative), _losses(traces, fmean))


def _until(relative: Mapping[Moment, float]) -> float:
    """Return the step from which on training has amplified rounding so much that nothing can be
    said any more: by chance alone two sound ways may be far apart."""
    moments = sorted(moment for moment in relative if moment[1] == "parameter")
    first = relative[moments[0]] if moments else 0.0
    for step, kind in moments:
        share = relative[step, kind]
        if share > _AMPLIFIED * first or share * ROUNDINGS > 1:
            return step
    return math.inf


def half_ulp(dtype: str, value: float | None) -> float:
    """Return half a unit in the last place of a number of a floating-point dtype; 0 of others."""
    if dtype not in _MANTISSA or not value or not math.isfinite(value):
        return 0.0
    return math.ldexp(1.0, math.frexp(value)[1] - 2 - _MANTISSA[dtype])


def _gaps_of_losses(
    ours: Traces, theirs: Traces, rounding: Rounding
) -> list[tuple[Place, float, float]]:
    """Return for each step how far its losses are apart, and how far rounding carries them. Of
    several microbatches their mean counts, or their sum, where each was divided before; and the
    loss may have another scale throughout, for the gradient tells whether that matters."""
    reference = _losses(ours, fmean)
    limits: dict[int, float] = {}
    limit = share = 0.0
    for step, loss in sorted(reference.items()):
        share = max(
            share, *(rounding.relative.get((step, kind), 0.0) for kind in KINDS)
        )
        near = gap(loss, rounding.losses.get(step, loss))
        limit = max(limit, near, half_ulp("float32", abs(loss)), share * abs(loss))
        limits[step] = limit
    found = []
    for total in (fmean, math.fsum):
        others = _losses(theirs, total)
        steps = sorted(reference.keys() & others.keys())
        first = steps[0] if steps else 0
        factor = 1.0
        if steps and others[first]:
            near = gap(reference[first], others[first])
            is_near = near <= ROUNDINGS * limits[first]
            factor = 1.0 if is_near else reference[first] / others[first]
        gaps = [
            (
                (step, "loss", "loss"),
                gap(reference[step], factor * others[step]),
                limits[step],
            )
            for step in steps
        ]
        found.append(gaps)
    return min(found, key=lambda gaps: max((far for _, far, _ in gaps), default=0.0))


def _losses(
    traces: Traces, total: Callable[[Iterable[float]], float]
) -> dict[int, float]:
    """Return the loss of each step: the mean over the ranks of what its microbatches come to."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for trace in traces.values():
        own: dict[int, list[float]] = defaultdict(list)
        for block in trace.blocks:
            if block.kind == "loss" and block.values:
                own[block.step].append(float.fromhex(block.values[0]))
        for step, losses in own.items():
            by_step[step].append(total(losses))
    return {step: fmean(losses) for step, losses in by_step.items()}


def _likely(
    ours: Traces,
    theirs: Traces,
    first: Apart | None,
) -> str:
    """Return the reason for a difference where the traces show it, else nothing."""
    own = next(iter(ours.values()))
    other = next(iter(theirs.values()))
    micro = _count(other, "loss") or 1
    if first is not None and first.step < 0:
        return "the model begins with other numbers: something draws before it is built"
    by_rank = [batches(trace, 0) for trace in theirs.values()]
    if len(by_rank) > 1 and by_rank[0] and all(it == by_rank[0] for it in by_rank):
        return "every rank was given the same batches"
    if micro > 1 and len(set(_shapes(other))) > 1:
        return (
            f"the {micro} microbatches of a step have different shapes: the mean of their means is "
            "not the mean over all"
        )
    at_gradient = first is not None and first.kind == "gradient"
    if at_gradient and (words := _scale(_factor(theirs), micro, len(theirs))):
        return words
    if _drawn(own) != _drawn(other):
        return (
            "torch's generator was drawn from otherwise in the first step: dropout, or another "
            "order of draws"
        )
    if micro == 1 == len(theirs) and batches(own, 0) != batches(other, 0):
        return "its first batch differs"
    short = len(other.steps) < len(own.steps)
    if first is None and short:
        return "a window at the end was dropped"
    return ""


def _count(trace: Trace, kind: str) -> int:
    return sum(block.kind == kind and block.step == 0 for block in trace.blocks)


def _shapes(trace: Trace) -> Iterator[tuple[tuple[int, ...], ...]]:
    for block in trace.blocks:
        if block.kind == "batch" and block.step == 0:
            yield tuple(row[2] for row in block.rows)


def _drawn(trace: Trace) -> bytes | None:
    """Return the state of torch's generator after the first step."""
    for block in reversed(trace.blocks):
        if block.kind == "rng" and block.step == 0:
            return dict(block.items()).get("torch")
    return None


def _factor(theirs: Traces) -> float | None:
    """Return the one factor that all first gradients of the other way have; None if they have none,
    or another direction."""
    shares = [
        item.l2 / item.reference_l2
        for item in _measured(theirs)
        if item.kind == "gradient" and item.l2 is not None and item.reference_l2
    ]
    if not shares or max(shares) - min(shares) > _SAME * max(shares):
        return None
    share = fmean(shares)
    part = 1 / (1 - share) if share < 1 - _SAME else 0.0
    if part and abs(part - round(part)) < _SAME * part and round(part) > 1:
        return 1 / round(part)
    return 1 + share if abs(share - round(share)) < _SAME * share else None


def _scale(factor: float | None, micro: int, ranks: int) -> str:
    """Return what a factor of the gradient comes from."""
    if factor is None:
        return ""
    few = round(1 / factor)
    many = round(factor)
    if factor < 1:
        what = {micro: "microbatches", ranks: "ranks"}.get(few, "")
        why = f": it is divided by the {few} {what} twice" if what else ""
        return f"every gradient is 1/{few} of the reference's{why}"
    what = {micro: "microbatches", ranks: "ranks"}.get(many, "")
    why = f": it is summed over the {many} {what}, not averaged" if what else ""
    return f"every gradient is {many} times the reference's{why}"
