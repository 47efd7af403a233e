"""Decides how large a change of a training is: the one scale for another ref, a baseline, another
environment and another way. Pure.

The measure is how far rounding alone moves each tensor by each step. It is measured in an extra
run of the reference whose initial weights differ in their last bit (the idea of TTrace, arXiv
2506.09280). Adaptive optimizers hide a gradient of a wrong scale, so the first gradient is compared
before all else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from repro_gate.compare.distances import MANTISSA, Processes, Traces, gap, measurements
from repro_gate.compare.effect import Effect
from repro_gate.compare.equivalence_reason import reason_of
from repro_gate.compare.model import (
    Amount,
    Apart,
    Count,
    Losses,
    UpTo1000,
    about,
    described,
    one_of,
    reported,
)
from repro_gate.compare.restored import Digests, unequal
from repro_gate.compare.traces import processes
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.format import unwrapped
from repro_gate.trace.model import Trace

# Up to so many times the effect of rounding count as the same training.
ROUNDINGS = 30.0
KINDS = ("gradient", "parameter")  # the kinds that the probe measures in another way
_FIRST = (0, "gradient")  # its step and kind
# The largest difference is left out for each so many elements of a parameter.
_LEFT_OUT = 8
# No tensor has more elements, whatever shape an untrusted trace states.
_MOST = 1 << 62
_EARLY = 32  # In these first steps every difference counts.
# A difference that begins with so many roundings is no drift.
_JUMP = 300.0
# If rounding has grown by this factor since the first step, comparing proves nothing any more.
_AMPLIFIED = 100.0

SIZE_WORDS = {  # from the smallest; `different`: beyond rounding, without seeds to say more
    "none": "bitwise identical results",
    "rounding": "rounding only",
    "within-seed-noise": "another training, within seed noise",
    "effect": "another training, with an effect",
    "different": "other results",
}
SIZES = tuple(SIZE_WORDS)
UNMEASURED = "roundings were not measured"  # how the detail begins then
_COMMON = "no parameter of one side has its name, type and shape on the other"

Moment = tuple[int, str]  # step, kind; kinds of a step come by the alphabet
StepLosses = Mapping[int, float]  # by step
Total = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
@described
class ChangedOperator:
    """The first operator that got the same bits on both sides and gave others.

    name: As torch dispatches it: `aten.addmm.default`.
    place: Its line; may be empty. Untrusted text.
    roundings: Distance of its outputs, in roundings of them; null if unknown.
    """

    name: str
    place: str
    roundings: Amount | None = None


@reported
class Change:
    """How large a change of a training is.

    beside: What it is compared with: a ref, `repro.baseline.yml`, an environment. Untrusted text.
    steps: Steps compared: later ones say nothing, rounding has grown.
    worst: What is farthest apart; null where nothing was measured.
    first: The first that differs by more than rounding; null if nothing does.
    unmatched: Parameters that only one side has, of the reference first. Untrusted text.
    detail: What no distance says: another number of steps. May be empty.
    likely: Why, where the traces show it. Untrusted text; may be empty.
    distributions: Installed distributions that differ: `torch 2.12.0 -> 2.13.0`.
    operator: The first operator that gives other bits, between two environments.
    effects: What it does to each metric, by runs that are paired by seed.
    losses: Of each seed: step, loss of the base, loss of the change.
    """

    size: Annotated[
        str,
        about(
            "Bitwise identical; within what rounding alone does; another training, but no metric "
            "differs by more than seeds make it; a metric differs; beyond rounding, without seeds.",
            **one_of(SIZES),
        ),
    ]
    beside: str = ""
    steps: Count = 0
    worst: Apart | None = None
    first: Apart | None = None
    unmatched: UpTo1000[str] = ()
    detail: str = ""
    likely: str = ""
    distributions: UpTo1000[str] = ()
    operator: ChangedOperator | None = None
    effects: Annotated[tuple[Effect, ...], Meta(max_length=20)] = ()
    losses: Annotated[tuple[tuple[int, Losses], ...], Meta(max_length=50)] = ()


@reported
class Equivalence(Change):
    """Another way to the same training, beside the first deterministic run.

    name: As the spec has it.
    compare: How it is compared.
    equivalent: Whether it is the same training.
    """

    name: str
    compare: Literal["bitwise", "rounding"]
    equivalent: bool


class Place(NamedTuple):
    """Where one quantity was measured."""

    step: int
    kind: str
    name: str


_moment = itemgetter(slice(2))  # of a Place


@dataclass(frozen=True)
class Rounding:
    """The effect of rounding alone: on each tensor, as the L2 norm of its difference; on the median
    tensor of a step and kind, relative to its norm; and on the losses. `until` is the first step
    that is no longer compared."""

    distances: Mapping[Place, float]
    relative: Mapping[Moment, float]
    until: float
    losses: StepLosses


def steps_to_keep(steps: int, every: int, most: int) -> tuple[int, ...]:
    """Return the steps at which tensors are measured, at most `most` of the recorded ones: the
    first, the last, and powers of two in between."""
    recorded = range(0, steps, every)
    powers = [1 << power for power in range(steps.bit_length())]
    chosen = [step for step in (0, *powers) if step in recorded]
    chosen[max(most - 1, 1) :] = recorded[-1:]
    return tuple(dict.fromkeys(chosen))[: max(most, 1)]


def unmatched(reference: Traces, other: Traces) -> list[str]:
    """Return the parameters of the reference that the other way lacks, compared by name, type and
    shape."""
    ours = dict.fromkeys(_parameters(reference))
    theirs = set(_parameters(other))
    return [row[0] for row in ours if row not in theirs]


def _parameters(traces: Traces) -> Iterator[Row]:
    for trace in traces:
        for kind, rows in trace.tables:
            if kind == "parameter":
                for name, dtype, shape in rows:
                    yield unwrapped(name), dtype, shape


def change_of(
    reference: Traces, other: Traces, perturbed: Traces | None = None
) -> Change:
    """Compare another training with the reference: within the rounding that the `perturbed` run
    shows, or bitwise if there is no such run. Of parameters what both sides have is compared."""
    ours = processes(reference)
    theirs = processes(other)
    until = math.inf
    differences = list(_unequal(ours, theirs, end=0))
    if perturbed is not None:
        rounding = rounding_of(perturbed)
        until = rounding.until
        differences = _since_start(differences, [*_far(ours, theirs, rounding)])
    elif not differences:
        differences = list(_unequal(ours, theirs))
    far = (it for it in differences if it.roundings is None or it.roundings > ROUNDINGS)
    first = next(far, None)
    before = max(
        (it.roundings or 0.0 for it in differences if first and it.step < first.step),
        default=0.0,
    )
    jump = _JUMP * min(before, 1.0)
    if first and first.roundings and first.step >= _EARLY and first.roundings < jump:
        # This may be chance where rounding was at work before: it may switch a ReLU on in only one
        # run, and training then amplifies that.
        until = first.step
        differences = [item for item in differences if item.step < until]
        first = None
    measured = [item for item in differences if item.roundings is not None]
    expected = max(len(trace.steps) for trace in ours.values())
    counts = {len(trace.steps) for trace in theirs.values()}
    detail = ""
    if counts != {expected}:
        listed = " and ".join(map(str, sorted(counts)))
        detail = f"it takes {listed} steps, the reference {expected}"
    lacking = unmatched(reference, other)
    if lacking and len(lacking) == len({*_parameters(reference)}):
        detail = _COMMON
    same = "none" if perturbed is None else "rounding"
    size = same if first is None and not detail else "different"
    return Change(
        size=size,
        steps=int(min(expected, until)),
        worst=max(measured, key=lambda item: item.roundings or 0.0, default=None),
        first=first,
        unmatched=tuple(dict.fromkeys([*lacking, *unmatched(other, reference)])),
        detail=detail,
        likely="" if size == same else reason_of(ours, theirs, first),
    )


def _since_start(initial: list[Apart], measured: list[Apart]) -> list[Apart]:
    """Return what differs, initial parameters first. If all that was measured is within rounding,
    so are they, as where another torch rounds the numbers that it draws in another way."""
    near = {
        item.name for item in measured if item.kind == "parameter" and not item.step
    }
    is_near = all((item.roundings or 0.0) <= ROUNDINGS for item in measured)
    if is_near and near >= {item.name for item in initial}:
        return measured
    return initial or measured


def _unequal(
    ours: Processes, theirs: Processes, end: float = math.inf
) -> Iterator[Apart]:
    """Yield what differs in any bit before a step: parameters, the first gradient and losses.
    StepLosses are left out if the number of microbatches differs, since then they cannot be bitwise
    identical. A process of the other way is compared with that of its rank, else with the first."""
    first = next(iter(ours.values()))
    for label, other in theirs.items():
        before = _compared(ours.get(label, first), end)
        after = _compared(other, end)
        for moment in sorted(before.keys() & after.keys()):
            step, kind = moment
            a = before[moment]
            b = after[moment]
            if kind == "parameter" or a.keys() == b.keys():
                for name in unequal(a, b):
                    yield Apart(step=step, kind=kind, name=name)


def _compared(trace: Trace, end: float) -> dict[Moment, Digests]:
    """Return the compared digests of each step and kind by name, and the number of losses."""
    found = defaultdict[Moment, Digests](dict)
    for block in trace.blocks:
        moment = block.step, block.kind
        number = f" {block.at}" if block.kind == "loss" else ""
        is_compared = block.kind in ("loss", "parameter") or moment == _FIRST
        if is_compared and block.step < end:
            for name, digest in block.items():
                found[moment][unwrapped(name) + number] = digest
    return found


def _far(ours: Processes, theirs: Processes, rounding: Rounding) -> Iterator[Apart]:
    """Yield the distances from the reference as multiples of the effect of rounding: first the
    first gradient, then losses and parameters by step."""
    limits = {
        place: limit
        for place, limit in rounding.distances.items()
        if math.isfinite(limit)
    }
    distances = defaultdict[Place, float](float)
    for item in _measured(theirs):
        place = Place(item.step, item.kind, item.name)
        if place in limits:
            distances[place] = max(distances[place], distance(item))
    reference = _losses(ours, mean)
    for step, limit in _limits_of_losses(reference, rounding).items():
        limits[Place(step, "loss", "loss")] = limit
    # The training may or may not have divided the losses of microbatches by their number.
    means = _gaps_of_losses(reference, _losses(theirs, mean), limits)
    sums = _gaps_of_losses(reference, _losses(theirs, _sum), limits)
    nearer = min(means, sums, key=lambda gaps: max(gaps.values(), default=0.0))
    distances.update(nearer)
    for place in sorted(distances, key=_moment):
        if place.kind == "gradient" or place.step < rounding.until:
            far = distances[place]
            limit = limits[place]
            count = math.inf if far else 0.0
            if limit:
                count = far / limit
            yield Apart(**place._asdict(), roundings=count)


def _measured(traces: Processes) -> Iterator[Measured]:
    """Yield the distances of the first gradient and of the parameters after each step of a
    process."""
    for label, item, _ in measurements(traces):
        is_first = (item.step, item.kind) == _FIRST
        is_taken = item.step < len(traces[label].steps)
        if is_first or (item.kind == "parameter" and is_taken):
            yield item


def distance(item: Measured) -> float:
    """Return the L2 norm of a tensor's difference. For a parameter its few largest elements are
    left out: if a gradient is nearly zero, rounding may change its sign, and then Adam moves that
    element by a whole step in the other direction."""
    if item.l2 is None or item.max_abs is None:
        return math.inf
    left_out = 0
    if item.kind != "gradient":
        left_out = min(math.prod(item.shape) // _LEFT_OUT, 4)
    try:
        square = item.l2**2 - left_out * item.max_abs**2
    except OverflowError:  # beyond any float
        return item.l2
    return math.sqrt(max(square, 0.0))


def rounding_of(perturbed: Traces) -> Rounding:
    """Return the effect of rounding on each tensor, from the perturbed run. It is at least half a
    unit in the last place of the tensor's largest number for each element, and never less than at
    an earlier step. A tensor, above all a small one, may agree by accident, so it is at least the
    median of all tensors, relative to their norms.
    """
    traces = processes(perturbed)
    norms = {}
    distances = defaultdict[Place, float](float)
    for item in _measured(traces):
        place = Place(item.step, item.kind, item.name)
        norms[place] = item.reference_l2 or 0.0
        count = min(math.prod(item.shape), _MOST)
        least = math.sqrt(count) * half_ulp(item.dtype, item.largest)
        far = math.inf if item.l2 is None else item.l2
        distances[place] = max(distances[place], far, least)
    relative = {}
    earlier = defaultdict[tuple[str, str], float](float)
    for moment, group in groupby(sorted(distances), key=_moment):
        places = list(group)
        shares = [distances[it] / norms[it] for it in places if norms[it]]
        share = middle = 0.0
        if shares:
            share = median(shares)
            middle = median(distances[it] for it in places)
            relative[moment] = share
        for place in places:
            tensor = place[1:]
            far = max(distances[place], share * norms[place], earlier[tensor])
            distances[place] = far or middle
            earlier[tensor] = distances[place]
    return Rounding(
        distances=distances,
        relative=relative,
        until=_until(relative),
        losses=_losses(traces, mean),
    )


def _until(relative: Mapping[Moment, float]) -> float:
    """Return the step from which on training has amplified rounding too much to compare: by chance
    alone two correct ways may be far apart."""
    first = None
    for step, kind in sorted(relative):
        if kind == "parameter":
            share = relative[step, kind]
            first = share if first is None else first
            if share > _AMPLIFIED * first or share * ROUNDINGS > 1:
                return step
    return math.inf


def half_ulp(dtype: str, value: float | None) -> float:
    """Return half a unit in the last place of a number of a floating-point dtype; 0 for other
    dtypes."""
    if dtype not in MANTISSA or not value or not math.isfinite(value):
        return 0.0
    return math.ldexp(1.0, math.frexp(value)[1] - 2 - MANTISSA[dtype])


def _limits_of_losses(reference: StepLosses, rounding: Rounding) -> dict[int, float]:
    """Return the effect of rounding on the loss of each step."""
    limits = {}
    limit = share = 0.0
    for step, loss in sorted(reference.items()):
        shares = [rounding.relative.get((step, kind), 0.0) for kind in KINDS]
        share = max(share, *shares)
        near = gap(loss, rounding.losses.get(step, loss))
        limit = max(limit, near, half_ulp("float32", abs(loss)), share * abs(loss))
        limits[step] = limit
    return limits


def _gaps_of_losses(
    reference: StepLosses, other: StepLosses, limits: Mapping[Place, float]
) -> dict[Place, float]:
    """Return how far the losses of each step are apart. A constant factor between them is ignored,
    since the gradient shows whether it matters."""
    gaps = {}
    factor = None
    for step in sorted(reference.keys() & other.keys()):
        place = Place(step, "loss", "loss")
        own = reference[step]
        if factor is None:
            is_near = gap(own, other[step]) <= ROUNDINGS * limits[place]
            factor = 1.0 if is_near or not other[step] else own / other[step]
        gaps[place] = gap(own, factor * other[step])
    return gaps


def _losses(traces: Processes, total: Total) -> dict[int, float]:
    """Return the loss of each step: the mean over the ranks of the `total` of its microbatches."""
    by_step = defaultdict(list)
    for trace in traces.values():
        own = defaultdict(list)
        for block in trace.blocks:
            if block.kind == "loss" and block.values:
                own[block.step].append(float.fromhex(block.values[0]))
        for step, losses in own.items():
            by_step[step].append(total(losses))
    return {step: mean(losses) for step, losses in by_step.items()}


def mean(losses: Sequence[float]) -> float:
    """Return the mean; NaN if there is none, or it is beyond any float."""
    return _sum(losses) / len(losses)


def _sum(losses: Sequence[float]) -> float:
    """Return the sum, rounded once; NaN likewise."""
    try:
        return math.fsum(losses)
    except (OverflowError, ValueError):
        return math.nan
