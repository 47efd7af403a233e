"""Explains one divergence: finds its cause, the line, and the runs that prove it.

1. Watch a pair of runs, up to three times, until it diverges.
2. Pin what differed, the likeliest first, until the divergence disappears; then release whatever is
   not needed for that (`stages` is the order, `smallest` the search).
3. If nothing that differed explains it, look for an operator that returned different bits for the
   same input, and replay it.
4. If the divergence only moved to a later place, leave that pinned and go to 2.
5. Input from outside cannot be pinned: if the divergence remains with all else pinned, report the
   line that received such input as observed.
6. Without one, report the line whose values differed first: what it calls draws in native code.

The answer is the first of these that there is: causes in the order in which they were found, a line
that takes results as they come, code that wrote what an operator reads, nothing.

It needs a divergence and a function that does pairs of runs. Outside of it: the runs themselves
(`gate/diagnose.py`), runs that agree but end in NaN (`nan.py`), varied runs (`robustness.py`), and
the words for what was seen (`report/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.experiments import (
    WHOLE,
    Exhausted,
    Experiments,
    Trials,
    smallest,
)
from repro_gate.diagnosis.model import (
    Diagnosis,
    Evidence,
    Explanation,
    Pair,
    Setting,
    Unit,
    use_of,
)
from repro_gate.diagnosis.operators import (
    NATIVE,
    culprit,
    nondeterministic,
    undispatched,
)
from repro_gate.diagnosis.suspects import (
    Suspect,
    answers,
    left_over,
    located,
    outside,
    remoteness,
    shared,
    started,
)
from repro_gate.escape import quoted
from repro_gate.factors import (
    BY_NAME,
    HANDED_OVER,
    RANDOM_ORDER,
    READ_SHARED,
    TIMED_OUT,
    Site,
)
from repro_gate.trace.format import HANDED, RANDOM_HASHES, SHARED, TIMED
from repro_gate.trace.model import Undone
from repro_gate.trace.notebook import place

_CAUSES = 4  # the most causes that are found together
# the kinds that operators compute
_NUMERIC = ("loss", "gradient", "parameter", "optimizer", "buffer")
# Factors of which the watcher cannot see every use. Fixing addresses also fixes the content of old
# memory.
_UNSEEN = ("memory", "addresses", "threads")
_NOWHERE: Site = ("", 0)
_NAMED = 200  # the most lines that are listed if any of them may decide
# what a line did, by the mark behind the source of its use
_DID = {HANDED: HANDED_OVER, SHARED: READ_SHARED, TIMED: TIMED_OUT}
_UNKNOWN = Diagnosis(
    cause="unknown",
    message="nothing that the gate can hold fixed or replay explains it",
)


class Stage(NamedTuple):
    """Units that may decide together, the likeliest first. The first `alone` of them are tried one
    by one before."""

    name: str
    units: Sequence[Unit]
    alone: int = 2


OPERATORS = Stage("operators", ())  # the stage that pins nothing and looks at operators


def explain(
    target: Divergence,
    experiments: Experiments[Setting, Pair],
    *,
    undone: Iterable[Undone] = (),
    steps: int | None = None,
) -> Explanation:
    """Find causes of a divergence until the runs agree, no further cause is found, or the runs or
    the time are used up. `undone` are flags that the training switched off; pinned pairs are cut
    off after `steps` (None: where the spec says)."""
    flags = {Unit("flags", item.site): item.flag for item in undone}
    search = _Search(target=target, experiments=experiments, steps=steps, flags=flags)
    try:
        search.find_causes()
    except Exhausted:
        search.evidence.append(Evidence("used-up"))
        if not search.causes:
            search.observe(shared(search.suspects()))
    agreed = search.target.step if search.last_pair.first else search.last_pair.steps
    return Explanation(
        causes=tuple(search.causes or [search.handed_over() or search.likely]),
        evidence=tuple(search.evidence),
        ruled_out=tuple(dict.fromkeys(search.ruled_out)),
        pinned=tuple(sorted({unit.factor for unit in search.pinned})),
        agreed_steps=agreed,
        rate=search.rate,
    )


def stages(
    inside: Sequence[Suspect], flags: Sequence[Unit], races: bool
) -> list[Stage]:
    """Return what is tried, in order, for suspects that can be pinned. `races`: the training starts
    threads or processes itself."""
    direct = [item.unit for item in inside if item.use.direct and item.use.site[0]]
    others, imported = (
        [it.unit for it in inside if it.unit.site and remoteness(it.use) == distance]
        for distance in (1, 2)
    )
    # Try a race first: by luck it may not show in the pair that tests another factor. But what
    # takes turns waits in turns too, so a wait that was seen to end by its limit comes before;
    # and few trainings start a child without the hash seed.
    hashes = [unit for unit in direct + others if unit.factor == "hashing"][:1]
    limits = [item.unit for item in inside if item.use.source.endswith(TIMED)][:1]
    first = [*hashes, *limits, *[Unit("threads")] * races]
    likeliest = [*flags, *first, *direct]
    # What the training asked for itself comes first: with what libraries asked for too, it takes
    # many more pairs to find the few that decide together.
    asked = [
        Stage("what lines of the training asked for", units, 1 + len(first))
        for units in (likeliest, likeliest + others)
    ]
    # First the factors that no watcher sees, then what imports asked for, and at last every
    # factor, those first that differed without a line of the workspace.
    nowhere = sorted(item.unit.factor for item in inside if not item.unit.site)
    factors = [name for name in (*_UNSEEN, *nowhere, *WHOLE) if name in WHOLE]
    return [
        *([*asked, OPERATORS] if likeliest else [OPERATORS, *asked]),
        *(Stage(f"{name} as a whole", [Unit(name)]) for name in _UNSEEN[:2]),
        Stage("what imports asked for", imported),
        Stage("every factor as a whole", [*map(Unit, factors)]),
    ]


@dataclass(kw_only=True)
class _Search(Trials):
    """The strategies of a search, and what they have found and ruled out so far."""

    # flags that the training switched off, by what keeps them on
    flags: Mapping[Unit, str]
    causes: list[Diagnosis] = field(default_factory=list)
    ruled_out: list[Evidence] = field(default_factory=list)
    likely: Diagnosis = _UNKNOWN  # what the operators show, if nothing else explains it

    def find_causes(self) -> None:
        """Find the causes of the divergence, in the order of the protocol."""
        self.watch()
        if self.last_pair.first is None:
            self.observe(left_over(self.last_pair.uses[0]))
        while self.last_pair.first is not None and len(self.causes) < _CAUSES:
            suspected = self.suspects()
            if not self._one_cause(suspected):
                if not self.observe(outside(suspected) or shared(suspected)):
                    self._unexplained()
                return
            if self.causes[-1].op is not None:  # which nothing was held to show
                return

    def _one_cause(self, suspected: Sequence[Suspect]) -> bool:
        """Find what makes the current divergence disappear, and pin it from now on."""
        inside = [item for item in suspected if not item.use.outside]
        plan = stages(inside, [*self.flags], self.races())
        everything = frozenset([*map(Unit, WHOLE), *self.flags])
        is_outside = any(item.use.direct for item in outside(suspected))
        if is_outside and not self.sufficient(everything):
            self.ruled_out.append(Evidence("every-factor"))
            plan = [OPERATORS]
        return any(
            self._operator() if stage is OPERATORS else self._decides(stage, inside)
            for stage in plan
        )

    def _decides(self, stage: Stage, differing: Sequence[Suspect]) -> bool:
        """Return whether pinning some units of a stage makes the divergence disappear. If so, pin
        them from now on and report them. Unless all are known to be needed, any of them may be
        innocent."""
        free = [unit for unit in dict.fromkeys(stage.units) if unit not in self.pinned]
        chosen, is_smallest = smallest(free, self.sufficient, stage.alone)
        unchanged = Evidence("factors", name=stage.name)
        if not chosen:
            self.ruled_out += [unchanged] if free else []
            return False
        self.ruled_out = [item for item in self.ruled_out if item != unchanged]
        most = _CAUSES if is_smallest else _NAMED
        causes = [self._cause(unit, differing) for unit in chosen[:most]]
        factors = dict.fromkeys(unit.factor for unit in chosen)
        if not is_smallest:
            causes = [_one_of(causes)]
            names = ", ".join(factors)
            self.evidence.append(Evidence("not-reduced", len(chosen), name=names))
        elif len(factors) > 1:
            causes = [*self._together(chosen, causes), *causes]
        self.causes += causes
        self.pin(chosen)
        return True

    def _operator(self) -> bool:
        """Look for an operator that returned different bits for the same input. If there is one,
        replay it on its own inputs."""
        if self.target.kind not in _NUMERIC:
            return False
        setting, pair = self.operators()
        shown = culprit(*pair.operators)
        if shown is None:
            if not pair.failed:
                count = len(pair.operators[0])
                step = max(setting.step, 0)
                self.ruled_out.append(Evidence("operators", count, step))
            return False
        if shown.after:
            self.likely = undispatched(shown)
            return False
        distinct = dict[str, int]()
        with suppress(Exhausted):
            again = replace(setting, replay=(shown.operator.op, shown.operator.count))
            replays = chain(*self.experiments.result(again).operators)
            distinct = next((it.distinct for it in replays if it.distinct), distinct)
        self.causes.append(nondeterministic(shown, distinct))
        return True

    def observe(self, differing: Sequence[Suspect]) -> bool:
        """Report the likeliest line that received different bytes from outside, or from another
        process. Return whether there is one."""
        for item in differing[:1]:
            cause = self._cause(item.unit, [item])
            evidence = (f"observed: {answers(item)}",)
            self.causes.append(
                replace(cause, confirmed=False, observed=True, evidence=evidence)
            )
        return bool(differing)

    def _unexplained(self) -> None:
        """Report the line whose values differ first with every factor held fixed, unless a kernel
        is known to write: what the line calls draws where nothing sees it."""
        lines = self.lines() if self.likely.cause == "unknown" else []
        for line in lines[:1]:
            where = place(*line.site)
            cause = replace(
                _UNKNOWN,
                file=line.site[0],
                line=line.site[1],
                call=line.call,
                observed=True,
                message=f"{quoted(line.call)} in {where} gave something else in each run, and "
                f"{_UNKNOWN.message}",
                evidence=(
                    "observed: with every factor held fixed, no line before it had other values",
                    *self.likely.evidence,
                ),
                remedy=NATIVE,
            )
            self.causes.append(cause)

    def handed_over(self) -> Diagnosis | None:
        """Return a line that takes results in the order of their arrival, as the likely cause if no
        runs were left to prove or rule it out; None if there is none."""
        lines = started(self.last_pair.uses[0], "threads")
        if self.ruled_out or not (lines and lines[0].source.endswith(HANDED)):
            return None
        return replace(self._cause(Unit("threads"), ()), confirmed=False)

    def _together(
        self, chosen: Sequence[Unit], causes: Sequence[Diagnosis]
    ) -> list[Diagnosis]:
        """Return what several factors do together, with the line where they meet: the first that
        has other values with only the earliest left free, and with only the latest. Empty if it is
        not found."""
        read = [Unit(use.factor, use.site) for use in self.last_pair.uses[0]]
        if not {*chosen} <= {*read}:
            return []
        first, *_, last = sorted(chosen, key=read.index)
        site = last.site or _NOWHERE
        call = " and ".join(item.call for item in causes)
        if any(unit.site != site for unit in chosen):
            late = {item.site for item in self.lines(last)}
            both = (item for item in self.lines(first) if item.site in late)
            if (line := next(both, None)) is None:
                return []
            site, call = line.site, line.call
        parts = " and ".join(
            f"{quoted(item.call)} in {place(item.file, item.line)}" for item in causes
        )
        together = replace(
            causes[0],
            factor=None,
            file=site[0],
            line=site[1],
            call=call,
            message=f"{parts} decide together, in {place(*site)}",
            evidence=(),
        )
        return [together]

    def _cause(self, unit: Unit, differing: Sequence[Suspect]) -> Diagnosis:
        """Return the diagnosis that this unit is a cause, with its line if one is known."""
        factor = BY_NAME[unit.factor]
        suspect = next((item for item in differing if item.unit == unit), None)
        use = suspect and suspect.use
        if not factor.by_line and not (use and use.site[0]):
            # If the factor can be pinned by line, its single lines were ruled out before.
            use = next(iter(started(self.last_pair.uses[0], unit.factor)), use)
        site = unit.site or (use.site if use else _NOWHERE)
        call = (use.call or use.source) if use else self.flags.get(unit, "")
        source = use.source if use else ""
        did = next((_DID[mark] for mark in _DID if source.endswith(mark)), factor.did)
        of_child = use if factor.name == "hashing" else None
        lines = self.lines(unit) if of_child or not site[0] else []
        if of_child:
            # What depends on the hashes of a child is a line of the child, which its parent or the
            # child itself has noted.
            own = source == RANDOM_HASHES
            lines = [it for it in lines if (it.process == of_child.process) == own]
            did = RANDOM_ORDER if lines else did
        if lines:
            site, call = lines[0].site, lines[0].call
        evidence = [answers(suspect)] if suspect else []
        return located(factor, site, call, did, *evidence)


def _one_of(causes: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis of a search that ended before it knew which of these decide."""
    likely = causes[0]
    if not likely.file:
        message = "the diagnosis used up its runs before it knew which line decides"
        likely = replace(_UNKNOWN, message=message)
    return replace(likely, confirmed=False, one_of=tuple(map(use_of, causes)))
