"""What was measured of the calls of operators, as data: bits and time with the determinism flags
off and on, the share of each operator in the cost, and what changed between two measurements. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Annotated

from msgspec import Meta

from repro_gate.compare import cost
from repro_gate.compare.model import (
    Amount,
    Interval,
    Number,
    UpTo1000,
    described,
    one_of,
    reported,
)
from repro_gate.trace.fields import Count, Location

OUTCOMES = ("repeats", "differs", "raises", "new memory", "not measured")
_FEWEST = 3  # timed executions of an arm, for a time
_RESOLUTION = 1e-3  # milliseconds; below it a time says nothing
_MOVED = 1.25  # between two ratios: smaller changes come from the machine's mood
_WORST_FIRST = ("raises", "differs", "not measured", "repeats", "new memory")


@reported
class OperatorArm:
    """What came of one call with the flags off, or with them on.

    outcome: `repeats` is equal bits each time; `new memory` that it gives memory as it was, which
        is not compared.
    runs: Executions that were compared, the first one among them.
    differing: Those whose bits were not those of the first.
    max_ulp: Largest distance of two elements, in representable values of the dtype.
    message: Why it raises or was not measured.
    """

    outcome: Annotated[str, Meta(**one_of(OUTCOMES))]
    runs: Count = 0
    differing: Count = 0
    max_ulp: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    message: Annotated[str, Meta(max_length=1_000)] = ""


@dataclass(frozen=True)
@described
class Longer:
    """How much longer one call takes.

    ms: In milliseconds; negative is shorter.
    ci95: Its 95 % interval.
    ratio: As a factor.
    ratio_ci95: Its 95 % interval.
    """

    ms: Number
    ci95: Interval
    ratio: Number
    ratio_ci95: Interval

    @property
    def is_clear(self) -> bool:
        """Return whether the interval excludes that nothing changes."""
        return self.ci95[0] > 0 or self.ci95[1] < 0


@reported
class OperatorCall:
    """One distinct call of an operator, made again on synthetic inputs of its form.

    operator: As torch dispatches it (`aten.index_put_.default`), or the name of a known call.
    form: Its arguments but for the elements of tensors, a long text cut. With the operator it is
        the key by which two measurements are compared.
    options: What chooses among its algorithms: `accumulate=True`.
    phase: `forward`, `backward` or `optimizer`.
    lines: Lines of the training that made it, the most frequent first.
    calls: How often the recorded step made it.
    off: Without the flags.
    on: With them.
    flags: How much longer it takes with the flags, without what the filling of new memory takes.
    filling: How much longer because new memory is filled; null where it is not.
    """

    operator: Annotated[str, Meta(max_length=300)]
    form: Annotated[str, Meta(max_length=1_100)]
    options: Annotated[str, Meta(max_length=200)] = ""
    phase: Annotated[str, Meta(max_length=20)] = ""
    lines: Annotated[tuple[Location, ...], Meta(max_length=10)] = ()
    calls: Count = 1
    off: OperatorArm
    on: OperatorArm
    flags: Longer | None = None
    filling: Longer | None = None


@reported
class Operators:
    """The operators of one step of the training, or of the known list, measured one by one.

    calls: Each distinct call.
    seconds: How long the measuring took.
    cost_pct: The cost of the flags that the gate measured, in percent of a step without them; null
        if it measured none.
    step_ms: A step without the flags, in milliseconds; null if no training was timed.
    platform: The interpreter and the device that computed: `torch`, `device`, `threads`, …
    """

    calls: UpTo1000[OperatorCall]
    seconds: Amount = 0.0
    cost_pct: Number | None = None
    step_ms: Amount | None = None
    platform: Annotated[Mapping[str, str], Meta(max_length=200)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Share:
    """The calls of one operator with the same options. `points` of the cost, in percent of a step:
    the sum of its clear differences; None if no step was timed."""

    operator: str
    options: str
    lines: Sequence[Location]
    calls: int
    off: OperatorArm
    on: OperatorArm
    points: float | None


def longer(on: Sequence[float], off: Sequence[float]) -> Longer | None:
    """Return the difference of two arms' times, in milliseconds, executed in turns, with the
    interval of `compare.cost` (Student's, of the difference of two means of logarithms). None for
    fewer than three of each, or times below the clock's."""
    if min(len(on), len(off)) < _FEWEST or min(*on, *off) < _RESOLUTION:
        return None
    low, high = cost.interval(on, off)
    base = geometric_mean(off)
    ratio = geometric_mean(on) / base
    return Longer(
        ms=(ratio - 1) * base,
        ci95=(low / 100 * base, high / 100 * base),
        ratio=ratio,
        ratio_ci95=(low / 100 + 1, high / 100 + 1),
    )


def shares(measured: Operators) -> list[Share]:
    """Return the operators, those with the largest share of the cost first (negative if the
    flags make them faster), then those that raise or whose bits differ."""
    groups = defaultdict(list)
    for call in measured.calls:
        groups[call.operator, call.options].append(call)
    rows = [
        Share(
            operator=operator,
            options=options,
            lines=tuple(dict.fromkeys(line for call in calls for line in call.lines)),
            calls=sum(call.calls for call in calls),
            off=min((call.off for call in calls), key=_badness),
            on=min((call.on for call in calls), key=_badness),
            points=_points(measured, ((call.flags, call.calls) for call in calls)),
        )
        for (operator, options), calls in groups.items()
    ]
    return sorted(
        rows,
        key=lambda row: (-abs(row.points or 0), _badness(row.off), _badness(row.on)),
    )


def filling(measured: Operators) -> float | None:
    """Return the share of the cost that filling new memory has, of all operators together."""
    return _points(measured, ((call.filling, call.calls) for call in measured.calls))


def _points(
    measured: Operators, differences: Iterable[tuple[Longer | None, int]]
) -> float | None:
    if not measured.step_ms:
        return None
    clear = (each.ms * calls for each, calls in differences if each and each.is_clear)
    return 100 * sum(clear) / measured.step_ms


def _badness(arm: OperatorArm) -> tuple[int, float]:
    return _WORST_FIRST.index(arm.outcome), -arm.differing / max(arm.runs, 1)


def changes(before: Operators, after: Operators) -> dict[str, list[OperatorCall]]:
    """Return the calls of the second measurement that changed, by what did; and those that only one
    of them holds."""
    old = {(call.operator, call.form): call for call in before.calls}
    moved = defaultdict(list)
    for call in after.calls:
        was = old.pop((call.operator, call.form), None)
        for kind in dict.fromkeys(_kinds(was, call) if was else ["only in the second"]):
            moved[kind].append(call)
    if old:
        moved["only in the first"] = [*old.values()]
    return dict(moved)


def _kinds(old: OperatorCall, new: OperatorCall) -> Iterator[str]:
    for was, now in ((old.off, new.off), (old.on, new.on)):
        if was.outcome != now.outcome:
            yield _kind(was, now)
    if _is_dearer(new.flags, old.flags):
        yield "dearer"
    elif _is_dearer(old.flags, new.flags):
        yield "cheaper"


def _is_dearer(one: Longer | None, other: Longer | None) -> bool:
    if one is None or other is None:
        return False
    apart = one.ratio_ci95[0] > other.ratio_ci95[1]
    return apart and one.ratio > _MOVED * other.ratio


def _kind(was: OperatorArm, now: OperatorArm) -> str:
    if {was.outcome, now.outcome} == {"repeats", "differs"}:
        races, rests = (now, was) if now.outcome == "differs" else (was, now)
        # n executions without a difference have a chance of (1 - p)^n: would it have shown at 95 %?
        share = min(races.differing / max(races.runs - 1, 1), 1.0)
        if (1 - share) ** max(rests.runs - 1, 0) > 0.05:
            return "too seldom to call it a change"
        return f"newly {now.outcome}"
    if now.outcome in ("differs", "raises"):
        return f"newly {now.outcome}"
    return "no longer raises" if was.outcome == "raises" else "another outcome"
