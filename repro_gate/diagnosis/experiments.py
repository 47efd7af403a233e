"""What every search is made of: experiments that are counted and remembered, `smallest`, and
`Trials`, which asks pairs of runs about one divergence. Nothing here starts a run.

A set of units is *sufficient* if two runs with all of it pinned no longer diverge at the place
where they did. The search looks for a smallest sufficient set, so it excludes what cannot be a
cause, such as a library's draws for its own temporary names. It leaves out halves as in Zeller's
and Hildebrandt's "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from repro_gate.compare.model import KINDS, STEPS, Divergence
from repro_gate.diagnosis.model import Evidence, Item, Pair, Rate, Setting, Unit
from repro_gate.diagnosis.operators import culprit
from repro_gate.diagnosis.suspects import (
    Suspect,
    differing_lines,
    left_over,
    started,
    suspects,
)
from repro_gate.factors import PINNED
from repro_gate.trace.format import RANDOM_HASHES
from repro_gate.trace.model import Used

Question = TypeVar("Question")
Answer = TypeVar("Answer")
# If a divergence does not come back in this many watched pairs, the last of them under stress, the
# search gives up.
_WATCHED = 3
_AGREEING = 3  # at most this many pairs must agree, however rarely the runs diverge
_EARLY = 19  # the last step up to which the operators of all steps are recorded
_FIRST_PAIR = Rate(diverged=1, pairs=1)  # the gate's own
WHOLE = tuple(factor.name for factor in PINNED if factor.name != "flags")


class Exhausted(Exception):
    """The diagnosis has used up its runs or its time."""


@dataclass
class Experiments(Generic[Question, Answer]):
    """Does each experiment when it is first asked for, and remembers its answer."""

    run: Callable[[Question], Answer]
    most: int  # experiments that may be done
    _: KW_ONLY
    seconds: float = inf  # after which none is begun
    always: int = 0  # the first ones, which are done whatever the bounds are
    done: int = 0
    began: float = field(default_factory=monotonic)
    known: dict[Question, Answer] = field(default_factory=dict)

    def result(self, question: Question, again: bool = False) -> Answer:
        """Return the answer of an experiment. Raises Exhausted if no more may be done."""
        if again or question not in self.known:
            self.spend()
            self.known[question] = self.run(question)
        return self.known[question]

    def spend(self) -> None:
        """Count one more experiment. Raises Exhausted if no more may be done."""
        is_used_up = self.done >= self.most or self.elapsed > self.seconds
        if is_used_up and self.done >= self.always:
            raise Exhausted
        self.done += 1

    @property
    def elapsed(self) -> float:
        """Return the seconds since the search began."""
        return monotonic() - self.began


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
            size //= 2
            for at in reversed(range(0, len(current), size)):
                rest = current[:at] + current[at + size :]
                if rest and sufficient(frozenset(rest)):
                    current = rest
    except Exhausted:
        return tuple(current), len(current) == 1
    return tuple(current), True


@dataclass(kw_only=True)
class Trials:
    """One divergence, what is pinned, and what pairs of runs have shown so far."""

    experiments: Experiments[Setting, Pair]
    target: Divergence  # the divergence to explain now
    # where pinned pairs are cut off; None: where the spec says
    steps: int | None = None
    # the pair that showed the target
    last_pair: Pair = field(default_factory=Pair)
    pinned: frozenset[Unit] = frozenset()
    # pinned set -> the last pairs with it that agreed, in a row
    agreed: dict[frozenset[Unit], list[Pair]] = field(default_factory=dict)
    # whether the divergence comes back only under stress, so that all later pairs need stress
    stress: bool = False
    # whether the divergence is at the same step each time; otherwise a later step proves nothing
    stable: bool = True
    rate: Rate = _FIRST_PAIR
    evidence: list[Evidence] = field(default_factory=list)

    def watch(self) -> None:
        """Do pairs that record every use of a factor, until one diverges or read what an earlier
        run left behind. The first is cut off after the divergence's step, later ones are longer,
        the last is under load."""
        for tried in range(_WATCHED):
            stress = tried == _WATCHED - 1
            setting = Setting(steps=self.steps if tried else self.cut, stress=stress)
            pair = self.experiments.result(setting, again=tried > 0)
            first = pair.first
            if pair.slow:
                self.evidence.append(Evidence("slow"))
                return
            if not stress:
                diverged = self.rate.diverged + (first is not None)
                self.rate = Rate(diverged, self.rate.pairs + 1)
            if not pair.failed:
                self.last_pair = pair
            if first is not None:
                self.stable = tried == 0 and first.step == self.target.step
                self.target = first
                self.stress = stress
                self.evidence += [Evidence("under-load")] * stress
                return
            if left_over(self.last_pair.uses[0]):
                return
        self.evidence.append(Evidence("rare", _WATCHED))

    @property
    def cut(self) -> int | None:
        """Return after how many steps a run can end so that it still shows the divergence; None if
        the divergence is at the end."""
        at_end = self.target.kind == "artifact" or self.target.name == STEPS
        return None if at_end else max(self.target.step, 0) + 1

    def suspects(self) -> list[Suspect]:
        """Return the suspects at or before the current divergence that are not pinned yet."""
        last = 1 << 62 if self.target.kind == "artifact" else self.target.step
        differing = suspects(*self.last_pair.uses, until=last)
        return [item for item in differing if item.unit not in self.pinned]

    def races(self) -> bool:
        """Return whether the training's own code started threads or processes before the
        divergence. Workers of a DataLoader do not count: they deliver in order."""
        threads = started(self.last_pair.uses[0], "threads")
        return any(it.direct for it in threads) and Unit("threads") not in self.pinned

    def sufficient(self, units: frozenset[Unit]) -> bool:
        """Return whether the divergence disappears with these pinned too, in enough pairs to
        exclude luck. If it only moved later, it must be at the same place in two pairs: a
        divergence that moves at random proves nothing."""
        pinned = self.pinned | units
        agreed = self.agreed.setdefault(pinned, [])
        setting = Setting(steps=self.steps, pinned=pinned, stress=self.stress)
        places = set[object]()
        needed = self._needed(units)
        while len(agreed) < max(needed, 2 if places - {None} else 1):
            pair = self.experiments.result(setting, again=bool(agreed))
            first = pair.first
            places.add(first and (first.step, first.kind, first.name, first.process))
            self.stable = self.stable and len(places) == 1
            if not self.gone(pair) or not (self.stable or first is None):
                agreed.clear()
                return False
            agreed.append(pair)
        return True

    def _needed(self, units: frozenset[Unit]) -> int:
        """Return how many pairs must agree: so many that luck explains it in less than one of ten
        cases, given how often pairs diverge; at least two for a race, and where no line of the
        training is known to use one of these factors."""
        luck = 1 - self.rate.diverged / self.rate.pairs
        used = {item.unit.factor for item in self.suspects() if item.use.site[0]}
        asked = any(unit.site or unit.factor in used for unit in units)
        needed = 1 if asked and not self.races() else 2
        while needed < _AGREEING and luck**needed > 0.1 and not self.stress:
            needed += 1
        return needed

    def gone(self, pair: Pair) -> bool:
        """Return whether the divergence has disappeared in a pinned pair: the pair agrees beyond
        its step, or diverges only later. If the divergence is at the end, agreement after any
        number of steps is enough."""
        if pair.failed:
            return False
        if pair.first is None:
            return self.cut is None or pair.steps > self.target.step
        later, place = (
            (item.step, KINDS.index(item.kind)) for item in (pair.first, self.target)
        )
        return later > place

    def pin(self, units: Sequence[Unit]) -> None:
        """Pin a sufficient set from now on. If the runs diverge then, that is the next divergence
        to explain."""
        self.pinned |= frozenset(units)
        self.last_pair = self.agreed[self.pinned][-1]
        if self.last_pair.first is not None:
            self.target = self.last_pair.first
            self.agreed.clear()  # these pairs agreed only up to the previous divergence
            self.evidence.append(
                Evidence("moved", step=self.target.step, name=self.target.name)
            )

    def lines(self, free: Unit | None = None) -> list[Used]:
        """Return the lines whose values differ with everything pinned but one unit; empty if no
        more runs may be done."""
        loose = {free.factor} if free else set[str]()
        # Fixed addresses would fix the content of old memory too.
        if "memory" in loose:
            loose.add("addresses")
        pinned = self.pinned | {*map(Unit, {*WHOLE} - loose)}
        if free and free.site:
            # Of a child's hashes there are two uses: its start, and its own. The starts of others
            # stay pinned.
            suspected = self.suspects()
            own = {
                item.unit: item.use.source == RANDOM_HASHES
                for item in suspected
                if item.unit.factor == free.factor == "hashing"
            }
            apart = {unit for unit in own if own[unit] or own.get(free)}
            pinned |= {item.unit for item in suspected} - apart - {free}
        step = max(self.target.step, 0)
        setting = Setting(steps=self.cut, pinned=pinned, lines=True, step=step)
        with suppress(Exhausted):
            return [*differing_lines(*self.experiments.result(setting).lines)]
        return []

    def operators(self) -> tuple[Setting, Pair]:
        """Return a pair that records the operators of the divergence's step. If the divergence does
        not come back in it, it may come at any step: return one that records all early steps."""
        step = self.target.step if self.stable else max(self.target.step, _EARLY)
        setting = Setting(
            steps=max(step, 0) + 1, pinned=self.pinned, operators=True, step=step
        )
        pair = self.experiments.result(setting)
        if culprit(*pair.operators) is None and self.gone(pair):
            self.rate = replace(self.rate, pairs=self.rate.pairs + 1)
            if self.stable:
                self.stable = False
                return self.operators()
        return setting, pair
