"""The types of a diagnosis: how a pair of runs is done, what it showed, and the result. And
`smallest`, the search for a cause, which asks for pairs of runs but starts none itself.

A set of units is *sufficient* if two runs with all of it pinned no longer diverge at the place
where they did. The search looks for a smallest sufficient set, so it excludes what cannot be a
cause, such as a library's draws for its own temporary names. It leaves out halves as in Zeller's
and Hildebrandt's "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from msgspec import Meta

from repro_gate.compare.model import KINDS, STEPS, Count, Divergence, described
from repro_gate.factors import Cause, Site
from repro_gate.trace.model import OperatorLine, Used

Item = TypeVar("Item")
_Uses = tuple[Used, ...]  # of one run


@dataclass(frozen=True, order=True)
class Unit:
    """What is pinned as one: a factor at one line, or (`site` None) in the whole run."""

    factor: str
    site: Site | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a pair of runs is done. Both end after `steps` (None: as the spec says). Operators are
    recorded at `step`, lines of the workspace up to it. `stress`: under load, with threads, tasks
    and processes that start at random times."""

    steps: int | None
    pinned: frozenset[Unit] = frozenset()
    operators: bool = False
    lines: bool = False
    replay: tuple[str, int] | None = None
    step: int = 0
    stress: bool = False


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The result of a pair of runs: where it diverged (None if it did not), and what was watched in
    each run. `steps` is how many they made, `finite` whether their numbers were finite, `failed`
    why they could not be compared. A line is a use whose `source` digests the order of the sets
    among its values."""

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
    """Return the line of a cause as an entry of `one_of`."""
    return ShownUse(
        factor=cause.factor or "", call=cause.call, file=cause.file, line=cause.line
    )


def numbered(
    items: Iterable[Item], key: Callable[[Item], tuple[object, ...]]
) -> dict[tuple[object, ...], Item]:
    """Return the items by key and occurrence: the n-th item with a key gets (*key, n). This pairs
    the items of two runs."""
    counts: Counter[tuple[object, ...]] = Counter()
    by_key: dict[tuple[object, ...], Item] = {}
    for item in items:
        name = key(item)
        counts[name] += 1
        place = (*name, counts[name])
        by_key[place] = item
    return by_key


class Exhausted(Exception):
    """The diagnosis has used up its runs or its time."""


@dataclass
class Experiments:
    """Does each pair of runs when it is first asked for, and remembers it. `left` is how many more
    pairs may be done."""

    run: Callable[[Setting], Pair]
    left: int
    known: dict[Setting, Pair] = field(default_factory=dict)

    def pair(self, setting: Setting, again: bool = False) -> Pair:
        """Return the pair of runs with this setting. Raises Exhausted if no more may be done."""
        if again or setting not in self.known:
            if self.left < 1:
                raise Exhausted
            self.left -= 1
            self.known[setting] = self.run(setting)
        return self.known[setting]


def gone(pair: Pair, target: Divergence) -> bool:
    """Return whether the divergence has disappeared in a pinned pair: the pair agrees beyond its
    step, or diverges only later. If the divergence is in the number of steps, agreement after any
    number is enough."""
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
    """Return a smallest sufficient set of `units`, from which no unit can be left out; empty if not
    even all together are sufficient. Return also whether it is known to be smallest: False if the
    runs were used up first. Raises Exhausted if they were used up before any set was sufficient.

    The likeliest units come first in `units`. The first `alone` of them are tried one by one, then
    all together, then the second. Then halves are left out, the less likely first, then quarters,
    down to single units.
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
