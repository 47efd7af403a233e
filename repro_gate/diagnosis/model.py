"""What a diagnosis asks of a pair of runs, what it gets, and what it finds.

The search for a cause (`smallest`) asks for pairs of runs and is told what they showed; it starts
none itself.

A set of units is *sufficient* where two runs no longer diverge, with all of it pinned, at the place
where they did. The search looks for a smallest sufficient set: what a library draws for its own
names is told apart because it is not in it. What is left out of it, half by half, follows Zeller's
and Hildebrandt's "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from msgspec import Meta

from repro_gate.compare.model import KINDS, STEPS, Count, Divergence, described
from repro_gate.factors import Cause, Site
from repro_gate.trace.model import OperatorLine, Used

Item = TypeVar("Item")
_Uses = tuple[Used, ...]  # of one run


@dataclass(frozen=True, order=True)
class Unit:
    """What is pinned or not as a whole: one factor at one line, or (`site` None) in the whole
    run."""

    factor: str
    site: Site | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a pair of runs is done. `steps` is where both are cut off (None: where the spec says),
    `step` the one whose operators, or up to which lines of the workspace, are recorded. `stress`:
    under load, with threads, tasks and processes that begin at odd times."""

    steps: int | None
    pinned: frozenset[Unit] = frozenset()
    operators: bool = False
    lines: bool = False
    replay: tuple[str, int] | None = None
    step: int = 0
    stress: bool = False


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a pair of runs showed: where it diverged (None: it did not), and what was watched in
    each run. `steps` is how many they made, `finite` whether their numbers were, `failed` says why
    it could not be compared. A line is a use whose `source` digests the order of the sets among its
    values."""

    first: Divergence | None = None
    steps: int = 0
    finite: bool = True
    uses: tuple[_Uses, _Uses] = ((), ())
    lines: tuple[_Uses, _Uses] = ((), ())
    operators: tuple[tuple[OperatorLine, ...], tuple[OperatorLine, ...]] = ((), ())
    failed: str = ""


@dataclass(frozen=True)
@described
class Rate:
    """How often pairs of equal runs diverge, the gate's own pair among them.

    diverged: Pairs that diverged.
    pairs: Pairs of runs.
    """

    diverged: Count
    pairs: Count


@dataclass(frozen=True, kw_only=True)
@described
class ShownUse:
    """What one line of the training asked one factor, over a whole run.

    factor: The factor: `entropy`, `clock`, …
    call: The call as it is written. Untrusted text.
    file: File, relative to the checkout; empty if no line of it asked.
    line: Its line, from 1; 0 where none is known.
    count: How often, in the first run.
    differs: Whether the two runs got other answers.
    """

    factor: str
    call: str
    file: str = ""
    line: Count = 0
    count: Count = 0
    differs: bool = False


@dataclass(frozen=True, kw_only=True)
@described
class ShownOperator:
    """One operator that torch dispatched near the one that gave other bits.

    name: Its name: `aten.index_put_.default`.
    phase: `forward`, `backward` or `optimizer`.
    file: File of the line that called it; empty if none is known.
    line: That line, from 1; 0 where none is known.
    same_inputs: Whether both runs gave it the same bits.
    same_outputs: Whether it gave the same bits in both runs.
    """

    name: str
    phase: str
    file: str = ""
    line: Count = 0
    same_inputs: bool = True
    same_outputs: bool = True


@dataclass(frozen=True, kw_only=True)
@described
class Diagnosis:
    """The cause of a divergence. It stands in `report.json` as it is; `file`, `call` and all
    sentences may hold untrusted text.

    cause: The cause; each has a page in `docs/causes/`.
    factor: The factor that was held fixed: `entropy`, `clock`, …; null if it is none.
    op: The operator that gave other bits: `aten.index_put_`; null if it is none.
    call: Source text of the call, or the flag; may be empty.
    file: File of the cause, relative to the checkout; `a.ipynb#cell 2` is a notebook's cell; empty
        if no line is known.
    line: Its line, in a notebook that of its cell, from 1; 0 where none is known.
    confirmed: Whether runs proved it: they agree with the factor held fixed, or the operator gave
        several outputs for one input.
    observed: Whether the line was seen to receive other bytes from outside in each of two runs
        before they diverged. Nothing was held fixed to prove that it decides.
    message: One sentence.
    evidence: What was seen, in order.
    remedy: What to do; may be empty.
    ruled_out: What was shown not to be the cause.
    also: Further causes: the runs agree only with these held fixed too.
    one_of: Where the search ended before it was known which of several decides: these and the cause
        itself, likeliest first.
    rate: How often equal runs diverge; null if every pair did.
    excerpt: The cause's line and those around it, of the commit: number and text. Untrusted text.
    uses: Uses of factors, those that differed first.
    operators: Operators around the one that gave other bits.
    runs: Runs that the diagnosis made.
    seconds: How long it took, in seconds.
    """

    cause: Cause
    factor: str | None = None
    op: str | None = None
    call: str = ""
    file: str = ""
    line: Annotated[int, Meta(ge=0)] = 0
    confirmed: bool = False
    observed: bool = False
    message: str = ""
    evidence: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    remedy: str = ""
    ruled_out: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    also: Annotated[tuple[Diagnosis, ...], Meta(max_length=20)] = ()
    one_of: Annotated[tuple[ShownUse, ...], Meta(max_length=200)] = ()
    rate: Rate | None = None
    excerpt: Annotated[tuple[tuple[int, str], ...], Meta(max_length=11)] = ()
    uses: Annotated[tuple[ShownUse, ...], Meta(max_length=200)] = ()
    operators: Annotated[tuple[ShownOperator, ...], Meta(max_length=50)] = ()
    runs: Count = 0
    seconds: Annotated[float, Meta(ge=0)] = 0.0


def use_of(cause: Diagnosis) -> ShownUse:
    """Return the line of a cause, as one of several that may decide."""
    return ShownUse(
        factor=cause.factor or "", call=cause.call, file=cause.file, line=cause.line
    )


def numbered(
    items: Iterable[Item], key: Callable[[Item], tuple[object, ...]]
) -> dict[tuple[object, ...], Item]:
    """Return the items by their keys, each with which time it was: what pairs those of two runs."""
    counts: Counter[tuple[object, ...]] = Counter()
    by_key: dict[tuple[object, ...], Item] = {}
    for item in items:
        name = key(item)
        counts[name] += 1
        place = (*name, counts[name])
        by_key[place] = item
    return by_key


class Exhausted(Exception):
    """The runs or the time that a diagnosis may take are used up."""


class Experiments:
    """Pairs of runs, done when asked for and remembered. `left` is how many more may be done; a
    pair is two runs."""

    def __init__(self, run: Callable[[Setting], Pair], pairs: int) -> None:
        self._run = run
        self.left = pairs
        self._known: dict[Setting, Pair] = {}

    def pair(self, setting: Setting, again: bool = False) -> Pair:
        """Return the pair of runs with this setting. Raises Exhausted if no more may be done."""
        if again or setting not in self._known:
            if self.left < 1:
                raise Exhausted
            self.left -= 1
            self._known[setting] = self._run(setting)
        return self._known[setting]


def gone(pair: Pair, target: Divergence) -> bool:
    """Tell whether the divergence is not there any more in a pinned pair: it agrees as far as that
    step, or diverges only later. Where the runs took different numbers of steps, it agrees however
    many it took."""
    if pair.failed:
        return False
    if pair.first is None:
        return (
            pair.steps > target.step
            or target.kind == "artifact"
            or target.name == STEPS
        )
    return _place(pair.first) > _place(target)


def _place(item: Divergence) -> tuple[int, int]:
    return item.step, KINDS.index(item.kind)


def smallest(
    units: Sequence[Item], sufficient: Callable[[frozenset[Item]], bool], alone: int = 1
) -> tuple[tuple[Item, ...], bool]:
    """Return a smallest set of `units` that is sufficient: no unit of it can be left out; empty if
    all of them are not. And whether that is known: False if the runs were used up before, and fewer
    units may do. Raises Exhausted if they were used up before any set was sufficient.

    The likeliest stand first in `units`: the first of them, as many as `alone` says, are tried one
    by one before all of them are; then two. Then halves are left out, the less likely first, then
    quarters, down to single units.
    """
    for unit in units[:alone]:
        if sufficient(frozenset({unit})):
            return (unit,), True
    if not units or not sufficient(frozenset(units)):
        return (), True
    current = list(units)
    try:
        for unit in units[alone:2]:
            if sufficient(frozenset({unit})):
                return (unit,), True
        size = len(current)
        while size > 1:
            size = -(-size // 2)
            for at in reversed(range(0, len(current), size)):
                rest = current[:at] + current[at + size :]
                if rest and sufficient(frozenset(rest)):
                    current = rest
    except Exhausted:
        return tuple(current), len(current) == 1
    return tuple(current), True
