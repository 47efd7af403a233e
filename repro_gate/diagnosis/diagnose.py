"""The diagnosis of one divergence: from the first divergent quantity to a cause, its line, and the
runs that prove it.

Watch a pair; pin what differed, the likeliest first, until the divergence disappears. If it only
moves to a later place, leave that pinned and continue from there. If no factor explains it, look at
operators. Input from outside cannot be pinned: if the divergence remains with all else pinned, the
line that received such input is reported as observed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace

from repro_gate.compare.model import STEPS, Divergence
from repro_gate.diagnosis.model import (
    Diagnosis,
    Exhausted,
    Experiments,
    Pair,
    Rate,
    Setting,
    Unit,
    gone,
    smallest,
    use_of,
)
from repro_gate.diagnosis.operators import culprit, nondeterministic, undispatched
from repro_gate.diagnosis.suspects import (
    Suspect,
    answers,
    first_difference,
    located,
    outside,
    started,
    suspects,
)
from repro_gate.factors import BY_NAME, HANDED_OVER, LEFTOVERS, PINNED, Site
from repro_gate.trace.format import ASKED, HANDED
from repro_gate.trace.model import Undone

# If a divergence does not come back in this many watched pairs, the last of them under stress, the
# search gives up.
_WATCHED = 3
_CAUSES = 4  # the most causes that are found together
_AGREEING = 3  # at most this many pairs must agree, however rarely the runs diverge
# the kinds that operators compute
_NUMERIC = ("loss", "gradient", "parameter", "optimizer", "buffer")
# Factors of which the watcher cannot see every use. Fixing addresses also fixes the content of old
# memory.
_UNSEEN = ("memory", "addresses", "threads")
_EARLY = 19  # the last step up to which the operators of all steps are recorded
_NOWHERE: Site = ("", 0)
_NAMED = 200  # the most lines that are listed if any of them may decide
_WHOLE = tuple(factor.name for factor in PINNED if factor.name != "flags")
_FIRST_PAIR = Rate(diverged=1, pairs=1)  # the gate's own
_UNKNOWN = Diagnosis(
    cause="unknown",
    message="nothing that the gate can hold fixed or replay explains it",
)


@dataclass
class Search:
    """The search for why two runs diverged, and what it has found and ruled out so far."""

    target: Divergence  # the divergence to explain
    experiments: Experiments
    _: KW_ONLY
    undone: Sequence[Undone] = ()  # flags that the training switched off
    # where pinned pairs are cut off; None: where the spec says
    steps: int | None = None
    # the pair that showed the target
    last_pair: Pair = field(default_factory=Pair)
    pinned: frozenset[Unit] = frozenset()
    # pinned set -> how many pairs in a row agreed with it
    agreed: Counter[frozenset[Unit]] = field(default_factory=Counter)
    # whether the divergence comes back only under stress, so that all later pairs need stress
    stress: bool = False
    # whether the divergence is at the same step each time; otherwise a later step proves nothing
    stable: bool = True
    causes: list[Diagnosis] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    rate: Rate = _FIRST_PAIR
    likely: Diagnosis = _UNKNOWN  # what the operators show, if nothing else explains it

    def diagnosis(self) -> Diagnosis:
        """Find causes until the runs agree, no further cause is found, or the runs or the time are
        used up. Return the first cause with the further ones."""
        try:
            self._find_causes()
        except Exhausted:
            self.evidence.append("the diagnosis used up its runs or its time")
        first, *others = self.causes or [self._handed_over() or self.likely]
        if self.pinned:
            last = (
                self.target.step if self.last_pair.first else self.last_pair.steps
            ) - 1
            how_far = f"up to step {last}" if last >= 0 else "before the first step"
            proofs = {BY_NAME[unit.factor].proof: 0 for unit in sorted(self.pinned)}
            held = (
                "with all of them held fixed" if first.one_of else " and ".join(proofs)
            )
            verb = "confirmed" if first.confirmed else "seen"
            self.evidence.append(
                f"{verb}: {held}, two runs are bitwise identical {how_far}"
            )
        return replace(
            first,
            also=tuple(others),
            evidence=(*self.evidence, *first.evidence),
            ruled_out=tuple(dict.fromkeys(self.ruled_out)),
            rate=self.rate if self.rate.diverged < self.rate.pairs else None,
        )

    def _find_causes(self) -> None:
        self._watch()
        while self.last_pair.first is not None and len(self.causes) < _CAUSES:
            if not self._one_cause():
                self._observe(outside(self._suspects()))
                return
            if self.causes[-1].op is not None:  # which nothing was held to show
                return

    def _watch(self) -> None:
        """Do pairs that record every use of a factor, until one diverges. The first is cut off
        after the divergence's step, later ones are longer."""
        for tried in range(_WATCHED):
            stress = tried == _WATCHED - 1
            steps = self.steps if tried else _cut(self.target)
            setting = Setting(steps=steps, stress=stress)
            pair = self.experiments.pair(setting, again=tried > 0)
            first = pair.first
            if not stress:
                diverged = self.rate.diverged + (first is not None)
                self.rate = Rate(diverged, self.rate.pairs + 1)
            if not pair.failed:
                self.last_pair = pair
            if first is not None:
                self.stable = tried == 0 and first.step == self.target.step
                self.target = first
                self.stress = stress
                if stress:
                    self.evidence.append(
                        "it came back under load, with threads, tasks and processes that start at "
                        "random times"
                    )
                return
            if self._left_over():
                return
        self.evidence.append(
            f"it did not come back in {_WATCHED} more pairs, the last under load: a rare race"
        )

    def _one_cause(self) -> bool:
        """Find what makes the current divergence disappear, and pin it from now on."""
        suspected = self._suspects()
        flags = [Unit("flags", item.site) for item in self.undone]
        all_units = frozenset([*map(Unit, _WHOLE), *flags])
        is_outside = any(item.use.direct for item in outside(suspected))
        if is_outside and not self._sufficient(all_units):
            self.ruled_out.append("holding every factor fixed does not change it")
            return self._operator()
        inside = [item for item in suspected if not item.use.outside]
        direct = [item.unit for item in inside if item.use.direct and item.use.site[0]]
        others = [
            item.unit for item in inside if not item.use.direct and item.unit.site
        ]
        # Try a race first: by luck it may not show in the pair that tests another factor.
        races = [Unit("threads")] if self._races() else []
        likeliest = flags + races + direct
        if not likeliest and self._operator():
            return True
        name = "what lines of the training asked for"
        if self._explained(likeliest + others, inside, name, alone=1 + len(races)):
            return True
        if likeliest and self._operator():
            return True
        # First the factors that no watcher sees, then those that differed without a line of the
        # workspace.
        nowhere = sorted(item.unit.factor for item in inside if not item.unit.site)
        factors = [name for name in (*_UNSEEN, *nowhere, *_WHOLE) if name in _WHOLE]
        whole = [*map(Unit, factors)]
        return self._explained(whole, inside, "every factor as a whole", alone=2)

    def _suspects(self) -> list[Suspect]:
        """Return the suspects at or before the current divergence that are not pinned yet."""
        last = 1 << 62 if self.target.kind == "artifact" else self.target.step
        differing = suspects(*self.last_pair.uses, until=last)
        return [item for item in differing if item.unit not in self.pinned]

    def _left_over(self) -> bool:
        """Return whether lines of an agreeing pair read what an earlier run left behind. The gate's
        first run found nothing there, and no later run can start like it."""
        read = [
            Suspect(unit=Unit(use.factor, use.site), use=use, other=None)
            for use in self.last_pair.uses[0]
            if use.factor == LEFTOVERS.name and not use.source.endswith(ASKED)
        ]
        return self._observe(outside(read))

    def _observe(self, differing: Sequence[Suspect]) -> bool:
        """Report the likeliest line that received different bytes from outside. Return whether
        there is one."""
        for item in differing[:1]:
            what = answers(item)
            if item.unit.factor == LEFTOVERS.name and item.other is None:
                what = f"{item.use.source}, which an earlier run wrote"
            cause = self._cause(item.unit, [item])
            self.causes.append(
                replace(
                    cause,
                    confirmed=False,
                    observed=True,
                    evidence=(f"observed: {what}",),
                )
            )
        return bool(differing)

    def _explained(
        self,
        units: Sequence[Unit],
        differing: Sequence[Suspect],
        name: str,
        *,
        alone: int,
    ) -> bool:
        """Return whether pinning some of these units makes the divergence disappear. If so, pin
        them from now on."""
        free = [unit for unit in dict.fromkeys(units) if unit not in self.pinned]
        chosen, known = smallest(free, self._sufficient, alone)
        if chosen:
            self._hold(chosen, differing, known=known)
        elif free:
            self.ruled_out.append(f"holding fixed {name} does not change it")
        return bool(chosen)

    def _sufficient(self, units: frozenset[Unit]) -> bool:
        """Return whether the divergence disappears with these pinned too, in enough pairs to
        exclude luck. If it only moved later, it must be at the same place in two pairs: a
        divergence that moves at random proves nothing."""
        pinned = self.pinned | units
        places = set[object]()
        while self.agreed[pinned] < max(self._needed(), 2 if places - {None} else 1):
            pair = self._pair(pinned, again=self.agreed[pinned] > 0)
            first = pair.first
            places.add(first and (first.step, first.kind, first.name, first.process))
            self.stable = self.stable and len(places) == 1
            if not gone(pair, self.target) or not (self.stable or first is None):
                self.agreed[pinned] = 0
                return False
            self.agreed[pinned] += 1
        return True

    def _needed(self) -> int:
        """Return how many pairs must agree: so many that luck explains it in less than one of ten
        cases, given how often pairs diverge; at least two for a race."""
        share = self.rate.diverged / self.rate.pairs
        needed = 2 if self._races() else 1
        if share < 1 and not self.stress:
            needed = max(needed, math.ceil(math.log(0.1) / math.log(1 - share)))
        return min(needed, _AGREEING)

    def _pair(self, pinned: frozenset[Unit], *, again: bool = False) -> Pair:
        """Return a pair of runs with these units pinned."""
        setting = Setting(steps=self.steps, pinned=pinned, stress=self.stress)
        return self.experiments.pair(setting, again=again)

    def _races(self) -> bool:
        """Return whether the training's own code started threads or processes before the
        divergence. Workers of a DataLoader do not count: they deliver in order."""
        is_direct = any(
            use.direct for use in started(self.last_pair.uses[0], "threads")
        )
        return is_direct and Unit("threads") not in self.pinned

    def _handed_over(self) -> Diagnosis | None:
        """Return a line that takes results in the order of their arrival, as the likely cause if no
        runs were left to prove or rule it out; None if there is none."""
        for use in (
            started(self.last_pair.uses[0], "threads") if not self.ruled_out else ()
        ):
            if use.source.endswith(HANDED):
                at = Suspect(unit=Unit("threads"), use=use, other=None)
                return replace(self._cause(at.unit, [at]), confirmed=False, evidence=())
        return None

    def _hold(
        self, chosen: Sequence[Unit], differing: Sequence[Suspect], *, known: bool
    ) -> None:
        """Report the sufficient units and pin them from now on. Unless it is `known` that all are
        needed, any of them may be innocent."""
        most = _CAUSES if known else _NAMED
        causes = [self._cause(unit, differing) for unit in chosen[:most]]
        if not known:
            likely = causes[0]
            lines = tuple(map(use_of, causes))
            if not likely.file:
                message = (
                    "the diagnosis used up its runs before it knew which line decides"
                )
                likely = replace(_UNKNOWN, message=message)
            causes = [replace(likely, confirmed=False, one_of=lines)]
            names = ", ".join(dict.fromkeys(unit.factor for unit in chosen))
            self.evidence.append(
                "the diagnosis used up its runs before it knew whether fewer of these "
                f"{len(chosen)} ({names}) are enough"
            )
        self.causes += causes
        self.pinned |= frozenset(chosen)
        self.last_pair = self._pair(self.pinned)
        if self.last_pair.first is not None:
            self.target = self.last_pair.first
            self.agreed.clear()  # these pairs agreed only up to the previous divergence
            self.evidence.append(
                f"then the runs diverge only at step {self.target.step}, in {self.target.name}"
            )

    def _cause(self, unit: Unit, differing: Sequence[Suspect]) -> Diagnosis:
        """Return the diagnosis that this unit is a cause, with its line if one is known."""
        factor = BY_NAME[unit.factor]
        suspect = next((item for item in differing if item.unit == unit), None)
        use = suspect and suspect.use
        if not factor.by_line and not (use and use.site[0]):
            # If the factor can be pinned by line, its single lines were ruled out before.
            use = next(iter(started(self.last_pair.uses[0], unit.factor)), use)
        site = unit.site or (use.site if use else _NOWHERE)
        call = (use.call or use.source) if use else ""
        for item in self.undone if factor.name == "flags" else ():
            if item.site == unit.site:
                call = item.flag
        if not site[0]:
            site, call = self._place(unit)
        did = HANDED_OVER if use and use.source.endswith(HANDED) else factor.did
        evidence = [answers(suspect)] if suspect else []
        return located(factor, site, call, did, *evidence)

    def _place(self, unit: Unit) -> tuple[Site, str]:
        """Return the line that a factor reached, if none of its uses names one: the first line
        whose values differ with every other factor pinned."""
        # Fixed addresses would fix the content of old memory too.
        free = {unit.factor, "addresses"} if unit.factor == "memory" else {unit.factor}
        setting = Setting(
            steps=_cut(self.target),
            pinned=self.pinned | {*map(Unit, {*_WHOLE} - free)},
            lines=True,
            step=max(self.target.step, 0),
        )
        try:
            line = first_difference(*self.experiments.pair(setting).lines)
        except Exhausted:
            line = None
        return (line.site, line.call) if line is not None else (_NOWHERE, "")

    def _recorded(self) -> tuple[Setting, Pair]:
        """Return a pair that records the operators of the divergence's step; if the divergence
        moves, those of all early steps."""
        step = self.target.step if self.stable else max(self.target.step, _EARLY)
        setting = Setting(
            steps=max(step, 0) + 1, pinned=self.pinned, operators=True, step=step
        )
        return setting, self.experiments.pair(setting)

    def _operator(self) -> bool:
        """Look for an operator that returned different bits for the same input. If there is one,
        replay it on its own inputs."""
        if self.target.kind not in _NUMERIC:
            return False
        setting, pair = self._recorded()
        # The divergence did not come back in this pair, so it may come at any step.
        if culprit(*pair.operators) is None and gone(pair, self.target):
            self.rate = replace(self.rate, pairs=self.rate.pairs + 1)
            if self.stable:
                self.stable = False
                setting, pair = self._recorded()
        shown = culprit(*pair.operators)
        if shown is None:
            if not pair.failed:
                count = len(pair.operators[0])
                step = max(setting.step, 0)
                self.ruled_out.append(
                    f"{count:,} operators of step {step} agree, or only one run called them"
                )
            return False
        record = shown.operator
        if shown.after:
            self.likely = undispatched(shown)
            return False
        distinct = None
        with suppress(Exhausted):
            replay = replace(setting, replay=(record.op, record.count))
            first, second = self.experiments.pair(replay).operators
            replays = (item.distinct for item in (*first, *second))
            distinct = next(filter(None, replays), None)
        self.causes.append(nondeterministic(record, shown.equal_before, distinct or {}))
        return True


def _cut(first: Divergence) -> int | None:
    """Return after how many steps a run can end so that it still shows the divergence; None if the
    divergence is at the end."""
    at_end = first.kind == "artifact" or first.name == STEPS
    return None if at_end else max(first.step, 0) + 1
