"""The diagnosis of one divergence: from the first divergent quantity to a cause, its line, and the
runs that prove it.

Watch a pair; pin what differed, the likeliest first, until the divergence is gone; where it only
moves to a later place, keep what moved it and go on from there. Operators are asked where the
factors say nothing. What came from outside can be pinned by nobody: where the divergence stays
though all else is pinned, the line that received it is told as observed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro_gate.compare.model import STEPS, Distance, Divergence
from repro_gate.diagnosis.model import (
    Diagnosis,
    Exhausted,
    Experiments,
    Pair,
    Rate,
    Setting,
    ShownUse,
    Unit,
    gone,
    smallest,
)
from repro_gate.diagnosis.operators import Culprit, culprit, told_operator
from repro_gate.diagnosis.suspects import (
    Suspect,
    answers,
    first_difference,
    observed,
    outside,
    started,
    suspects,
)
from repro_gate.factors import BY_NAME, HANDED_OVER, LEFTOVERS, PINNED, Site
from repro_gate.trace.format import ASKED, HANDED
from repro_gate.trace.model import Undone
from repro_gate.trace.notebook import place

REPLAYS = 30
# pairs that are watched before a divergence counts as one that does not come back; the last of them
# under stress
_WATCHED = 3
_CAUSES = 4  # that are needed together, at most
_AGREEING = 3  # pairs that must agree at most, however rarely the runs diverge
_NUMERIC = ("loss", "gradient", "parameter", "optimizer", "buffer")  # what operators made
# whose every use no watcher notes; where addresses are fixed, so is what old memory holds
_UNSEEN = (
    "memory",
    "addresses",
    "threads",
)
_EARLY = 19  # the last step up to which the operators of all steps are recorded
_NOWHERE: Site = ("", 0)
_NAMED = 200  # lines of which one decides, at most
_EVERYTHING = frozenset(Unit(factor.name) for factor in PINNED if factor.name != "flags")
_NOT_REDUCED = "the runs were used up before it was known what decides"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is to be explained. `steps`: where pinned pairs are cut off, None: where the spec
    says."""

    first: Divergence
    undone: Sequence[Undone] = ()
    steps: int | None = None


def diagnose(case: Case, experiments: Experiments) -> Diagnosis:
    """Why two runs diverged first at `case.first`. Never raises Exhausted: what was found by then
    is returned."""
    search = _Search(case, experiments)
    try:
        search.run()
    except Exhausted:
        search.evidence.append("the runs or the time that a diagnosis may take were used up")
    return search.told()


def diagnose_nan(experiments: Experiments, steps: int) -> Diagnosis | None:
    """Which line reads memory that nothing had written, where two equal runs have no finite
    numbers: torch fills such memory with NaN, and with another fill they are finite. None where
    they are not."""
    try:
        lines = {
            Unit(use.factor, use.site): use
            for use in experiments.pair(Setting(steps=steps)).uses[0]
            if use.factor == "memory"
        }
        units = sorted(
            (unit for unit in lines if unit.site and unit.site[0]),
            key=lambda unit: not lines[unit].direct,
        )

        def finite(chosen: frozenset[Unit]) -> bool:
            pair = experiments.pair(Setting(steps=steps, pinned=chosen))
            return pair.finite and not pair.failed

        if not units or not finite(frozenset(units)):
            return None
        (unit, *_), known = smallest(units, finite)
    except Exhausted:
        return None
    if not known:
        return None
    factor, use = BY_NAME["memory"], lines[unit]
    return Diagnosis(
        cause=factor.cause,
        factor=factor.name,
        call=use.call or use.source,
        file=use.site[0],
        line=use.site[1],
        confirmed=True,
        message=f"{use.call or use.source} in {place(*use.site)} {factor.did}",
        evidence=(
            "the flag fill_uninitialized_memory fills it with NaN",
            f"confirmed: {factor.held}, the numbers are finite",
        ),
        remedy=factor.remedy,
    )


class _Search:
    """What was seen, found and ruled out so far."""

    def __init__(self, case: Case, experiments: Experiments) -> None:
        self.case, self.experiments = case, experiments
        self.until = case.first  # the divergence that is to go
        self.seen = Pair()  # the pair that showed it
        self.pinned: frozenset[Unit] = frozenset()
        # pinned sets, and how many pairs in a row agreed with them
        self.agreed: Counter[frozenset[Unit]] = Counter()
        self.by_operator = False  # the last cause is an operator, and nothing was held to show it
        self.stress = (
            False  # whether it comes back under stress only, which all that follows is then under
        )
        # whether it comes at the same step each time: else nothing follows from a later one
        self.stable = True
        self.found: list[Diagnosis] = []
        self.evidence: list[str] = []
        self.ruled_out: list[str] = []
        self.rate = Rate(diverged=1, pairs=1)

    def run(self) -> None:
        """Find causes until the runs agree, or nothing more explains them."""
        self._watch()
        while self.seen.first is not None and len(self.found) < _CAUSES and not self.by_operator:
            if not self._one_cause():
                self._observe(outside(self._suspects()))
                return

    def told(self) -> Diagnosis:
        """What was found: the first cause, with those that are needed besides."""
        whole = self.seen.first is None and self.found
        ruled_out, rate = (
            tuple(dict.fromkeys(self.ruled_out)),
            self.rate if self.rate.diverged < self.rate.pairs else None,
        )
        if not self.found:
            message = "no factor or operator that the gate can hold fixed explains it"
            found = self._handed_over() or Diagnosis(cause="unknown", message=message)
            evidence = tuple(self.evidence)
            return replace(found, evidence=evidence, ruled_out=ruled_out, rate=rate)
        first, *others = self.found
        if self.pinned:
            last = self.seen.steps - 1 if whole else self.until.step - 1
            held = " and ".join(
                dict.fromkeys(BY_NAME[unit.factor].held for unit in sorted(self.pinned))
            )
            until = f"up to step {last}" if last >= 0 else "before the first step"
            proven = (
                f"confirmed: {held}"
                if first.confirmed
                else f"seen: {'with all of them held fixed' if first.one_of else held}"
            )
            self.evidence.append(f"{proven}, two runs are bitwise identical {until}")
        return replace(
            first,
            also=tuple(others),
            evidence=(*self.evidence, *first.evidence),
            ruled_out=ruled_out,
            rate=rate,
        )

    def _watch(self) -> None:
        """A pair that diverges, with every use of a factor noted: cut off after that step; longer
        where it does not come back."""
        for tried in range(_WATCHED):
            steps = _cut(self.until) if tried == 0 else self.case.steps
            stress = tried == _WATCHED - 1
            pair = self.experiments.pair(Setting(steps=steps, stress=stress), again=tried > 0)
            back = pair.first is not None and not pair.failed
            if not stress:
                self.rate = Rate(diverged=self.rate.diverged + back, pairs=self.rate.pairs + 1)
            self.seen = pair if not pair.failed else self.seen
            if not back and self._left_over():
                return
            if back and pair.first is not None:
                self.stable = tried == 0 and pair.first.step == self.until.step
                self.until, self.stress = pair.first, stress
                if stress:
                    self.evidence.append(
                        "it came back under load, with threads, tasks and processes that begin at "
                        "odd times"
                    )
                return
        self.evidence.append(
            f"it did not come back in {_WATCHED} more pairs, the last under load: a rare race"
        )

    def _one_cause(self) -> bool:
        """Find what makes the divergence in progress go, and hold it from here on."""
        suspected = self._suspects()
        found = [item for item in suspected if not item.use.outside]
        numeric = self.until.kind in _NUMERIC
        flags = [Unit("flags", item.site) for item in self.case.undone]
        from_outside = any(item.use.direct for item in outside(suspected))
        if from_outside and not self._sufficient(_EVERYTHING.union(flags)):
            self.ruled_out.append("every factor that can be held fixed, held, does not change it")
            return numeric and self._operator()
        direct = [item.unit for item in found if item.use.direct and item.use.site[0]]
        # luck may hide a race from any other pair: it is ruled out first
        races = [Unit("threads")] if self._races() else []
        likeliest = list(dict.fromkeys(flags + races + direct))
        # what libraries asked for on behalf of its lines
        others = [item.unit for item in found if not item.use.direct and item.unit.site]
        if not likeliest and numeric and self._operator():
            return True
        units = likeliest + others
        if self._explained(
            units[: 1 + len(races)], units, found, "what lines of the training asked for"
        ):
            return True
        if likeliest and numeric and self._operator():
            return True
        rest = self._whole(found)
        return self._explained(rest[:2], rest, found, "every factor as a whole")

    def _suspects(self) -> list[Suspect]:
        """What differed before the divergence in progress and is not pinned yet."""
        return [
            item
            for item in suspects(*self.seen.uses, until=_until(self.until))
            if item.unit not in self.pinned
        ]

    def _left_over(self) -> bool:
        """Whether lines of a pair that agrees read what an earlier run had left: the gate's own
        first run found nothing there, and no later one begins like it."""
        read = [
            Suspect(unit=Unit(use.factor, use.site), use=use, other=None)
            for use in self.seen.uses[0]
            if use.factor == LEFTOVERS.name and not use.source.endswith(ASKED)
        ]
        return self._observe(outside(read))

    def _observe(self, found: Sequence[Suspect]) -> bool:
        """Tell of the likeliest line that received other bytes from outside, if there is one."""
        for item in found[:1]:
            left = item.unit.factor == LEFTOVERS.name and item.other is None
            what = f"{item.use.source}, which an earlier run wrote" if left else observed(item)
            self.found.append(
                replace(
                    self._cause(item.unit, [item]),
                    confirmed=False,
                    observed=True,
                    evidence=(f"observed: {what}",),
                )
            )
        return bool(found)

    def _explained(
        self, alone: Sequence[Unit], units: Sequence[Unit], found: Sequence[Suspect], name: str
    ) -> bool:
        """Whether one of `alone`, or all `units` together, make the divergence go; what does is
        held from here on."""
        free = tuple(unit for unit in dict.fromkeys(units) if unit not in self.pinned)
        tried = dict.fromkeys(
            [*(frozenset({unit}) for unit in alone if unit in free), frozenset(free)]
        )
        try:
            enough = bool(free) and any(self._sufficient(chosen) for chosen in tried)
        except Exhausted:
            agreed = next(
                (chosen for chosen in tried if self.agreed[self.pinned | chosen]), frozenset()
            )
            if agreed:  # in fewer pairs than it takes to exclude luck
                self._hold([unit for unit in free if unit in agreed], found, known=False)
            raise
        if enough:
            chosen, known = smallest(free, self._sufficient)
            self._hold(chosen, found, known=known)
            return True
        if free:
            self.ruled_out.append(f"{name}, held fixed, does not change it")
        return False

    def _whole(self, found: Sequence[Suspect]) -> list[Unit]:
        """Every factor, likeliest first: those that no watcher sees, then those that differed at no
        line of the workspace."""
        seen = {item.unit.factor for item in found if not item.unit.site}
        names = [*_UNSEEN, *sorted(seen), *(factor.name for factor in PINNED)]
        return [Unit(name) for name in dict.fromkeys(names) if Unit(name) in _EVERYTHING]

    def _sufficient(self, units: frozenset[Unit]) -> bool:
        """Whether the divergence is gone with these pinned too, in as many pairs as it takes to
        exclude luck. Where it only comes later, it has to come at the same place twice: one that
        comes anywhere shows nothing by coming later."""
        pinned = self.pinned | units
        later: set[Divergence | None] = set()
        while self.agreed[pinned] < max(self._needed(), 2 if later - {None} else 1):
            pair = self._pinned(pinned, again=self.agreed[pinned] > 0)
            unmeasured = vars(Distance())
            later.add(
                None if pair.first is None else replace(pair.first, values=None, **unmeasured)
            )
            self.stable = self.stable and len(later) == 1
            if not gone(pair, self.until) or not (self.stable or pair.first is None):
                self.agreed[pinned] = 0
                return False
            self.agreed[pinned] += 1
        return True

    def _needed(self) -> int:
        """Pairs that must agree: those that all agree by luck in less than one case of ten, by how
        often pairs diverge; two for a race."""
        share = self.rate.diverged / self.rate.pairs
        by_rate = 1 if share == 1 or self.stress else math.ceil(math.log(0.1) / math.log(1 - share))
        return min(max(by_rate, 2 if self._races() else 1), _AGREEING)

    def _pinned(self, units: frozenset[Unit], again: bool = False) -> Pair:
        return self.experiments.pair(
            Setting(steps=self.case.steps, pinned=units, stress=self.stress), again=again
        )

    def _races(self) -> bool:
        """Whether the training's own code started threads or processes before the divergence. A
        loader's workers hand over in order."""
        return Unit("threads") not in self.pinned and any(
            use.direct for use in started(self.seen.uses[0], "threads")
        )

    def _handed_over(self) -> Diagnosis | None:
        """Return the line that takes results as they come, as the likely cause where no runs were
        left to prove or rule it out; None if no line does."""
        use = next(
            (use for use in started(self.seen.uses[0], "threads") if use.source.endswith(HANDED)),
            None,
        )
        if use is None or self.ruled_out:
            return None
        at = Suspect(unit=Unit("threads"), use=use, other=None)
        return replace(self._cause(at.unit, [at]), confirmed=False)

    def _hold(self, chosen: Sequence[Unit], found: Sequence[Suspect], *, known: bool) -> None:
        """Tell of what is sufficient, and go on with it held. Where it is not `known` that all of
        it is needed, any may be innocent."""
        moved = self._pinned(self.pinned | frozenset(chosen))
        causes = [self._cause(unit, found) for unit in chosen[: _CAUSES if known else _NAMED]]
        if not known:
            lines = tuple(
                ShownUse(factor=item.factor or "", call=item.call, file=item.file, line=item.line)
                for item in causes
            )
            likely = (
                causes[0]
                if causes[0].file or len(causes) == 1
                else Diagnosis(cause="unknown", message=_NOT_REDUCED)
            )
            causes = [replace(likely, confirmed=False, one_of=lines if len(lines) > 1 else ())]
        if not known and len(chosen) > 1:
            names = ", ".join(dict.fromkeys(unit.factor for unit in chosen))
            self.evidence.append(
                f"the runs were used up before it was known whether fewer of these {len(chosen)} "
                f"({names}) are enough"
            )
        self.found += causes
        self.pinned |= frozenset(chosen)
        if moved.first is not None:
            self.evidence.append(
                f"then the runs diverge only at step {moved.first.step}, in {moved.first.name}"
            )
            self.until = moved.first
        self.seen = moved

    def _cause(self, unit: Unit, found: Sequence[Suspect]) -> Diagnosis:
        factor = BY_NAME[unit.factor]
        suspect = next((item for item in found if item.unit == unit), None)
        flag = (
            next((item for item in self.case.undone if item.site == unit.site), None)
            if unit.factor == "flags"
            else None
        )
        use = None if suspect is None else suspect.use
        if not (factor.by_line or (use and use.site[0])):  # else single lines were ruled out before
            use = next(iter(started(self.seen.uses[0], unit.factor)), use)
        site = unit.site or (use.site if use is not None else _NOWHERE)
        call = flag.flag if flag is not None else "" if use is None else use.call or use.source
        if not site[0]:
            site, call = self._place(unit)
        where = f" in {place(*site)}" if site[0] else ""
        did = HANDED_OVER if use is not None and use.source.endswith(HANDED) else factor.did
        return Diagnosis(
            cause=factor.cause,
            factor=factor.name,
            call=call,
            file=site[0],
            line=site[1],
            confirmed=True,
            message=f"{call or 'the training'}{where} {did}",
            evidence=() if suspect is None else (answers(suspect),),
            remedy=factor.remedy,
        )

    def _place(self, unit: Unit) -> tuple[Site, str]:
        """The line that a factor reached, where no use of it names one: the first line whose values
        differ with every other factor held."""
        # fixed addresses fix what old memory holds
        free = {unit.factor, "flags"} | ({"addresses"} if unit.factor == "memory" else set())
        others = frozenset(Unit(item.name) for item in PINNED if item.name not in free)
        try:
            pair = self.experiments.pair(
                Setting(
                    steps=_cut(self.until),
                    pinned=self.pinned | others,
                    lines=True,
                    step=max(self.until.step, 0),
                )
            )
        except Exhausted:
            return _NOWHERE, ""
        line = first_difference(*pair.lines)
        return (line.site, line.call) if line is not None else (_NOWHERE, "")

    def _recorded(self) -> tuple[Setting, Pair, Culprit | None]:
        """A pair with its operators recorded, those of the divergence's step; of one that moves,
        those of all early steps."""
        step = self.until.step if self.stable else max(self.until.step, _EARLY)
        setting = Setting(steps=max(step, 0) + 1, pinned=self.pinned, operators=True, step=step)
        pair = self.experiments.pair(setting)
        return setting, pair, culprit(*pair.operators)

    def _operator(self) -> bool:
        """Look for an operator that got the same bits and gave others; where there is one, replay
        it on its own inputs."""
        setting, pair, shown = self._recorded()
        # it did not come this time: it may come at any step
        if shown is None and gone(pair, self.until):
            self.rate = replace(self.rate, pairs=self.rate.pairs + 1)
            if self.stable:
                self.stable = False
                setting, pair, shown = self._recorded()
        if shown is None:
            if not pair.failed:
                count, step = len(pair.operators[0]), max(setting.step, 0)
                self.ruled_out.append(
                    f"{count:,} operators of step {step} agree, or are not there in both runs"
                )
            return False
        if shown.operator is None:
            self.evidence.append(shown.between)
            return False
        record = shown.operator
        try:
            again = self.experiments.pair(
                replace(setting, replay=(record.op, record.count))
            ).operators
        except Exhausted:
            again = ((), ())
        distinct = next((item.distinct for run in again for item in run if item.distinct), {})
        self.found.append(told_operator(shown, record, distinct, REPLAYS))
        self.by_operator = True
        return True


def _cut(until: Divergence) -> int | None:
    """How many steps a run makes that ends right after the divergence; None: all, where that is at
    its end."""
    return None if until.kind == "artifact" or until.name == STEPS else max(until.step, 0) + 1


def _until(item: Divergence) -> int:
    return 1 << 62 if item.kind == "artifact" else item.step
