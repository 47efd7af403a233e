"""The diagnosis of one divergence: from the first divergent quantity to a cause, its line, and the runs that prove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.model import Diagnosis, OperatorCall, Pair, Setting, Unit
from repro_gate.diagnosis.operators import Culprit, culprit
from repro_gate.diagnosis.search import Exhausted, Experiments, agrees, smallest
from repro_gate.diagnosis.suspects import Suspect, suspects
from repro_gate.factors import BY_NAME, FACTORS, Factor, Site

REPLAYS = 30
_WATCHED = 3  # pairs that are watched before a divergence counts as one that does not come back


@dataclass(frozen=True)
class Undone:
    """A flag that training code set to another value than the arm's, and its line."""

    flag: str
    value: str
    site: Site


def diagnose(first: Divergence, undone: Sequence[Undone], experiments: Experiments) -> Diagnosis:
    """Why two runs diverged first at `first`. Never raises Exhausted: what was found by then is returned."""
    story = _Story(first)
    try:
        return _diagnose(first, undone, experiments, story)
    except Exhausted:
        story.evidence.append("the runs or the time that a diagnosis may take were used up before a cause was shown")
        return story.unknown()


class _Story:
    """What was seen and ruled out on the way."""

    def __init__(self, first: Divergence) -> None:
        self.first = first
        self.evidence: list[str] = []
        self.ruled_out: list[str] = []

    def unknown(self) -> Diagnosis:
        """No cause could be shown."""
        return Diagnosis(
            cause="unknown",
            message="no factor or operator that the gate can hold fixed explains it",
            evidence=tuple(self.evidence),
            ruled_out=tuple(self.ruled_out),
        )


def _diagnose(first: Divergence, undone: Sequence[Undone], experiments: Experiments, story: _Story) -> Diagnosis:
    steps = max(first.step, 0) + 1
    watched = _watched(steps, experiments, story)
    if watched.first is None:
        return story.unknown()
    until = watched.first
    found = suspects(*watched.uses, until=until.step)
    flags = [Unit("flags", item.site) for item in undone]
    own = [item.unit for item in found if item.use.site != ("", 0)]
    rest = [Unit(factor.name) for factor in FACTORS if factor.name != "flags"]

    def sufficient(units: frozenset[Unit]) -> bool:
        return agrees(experiments.pair(Setting(steps=steps, pinned=units)), until)

    operators_first = not own and not flags and until.kind in ("loss", "gradient")
    if operators_first:
        shown = _operator(until, steps, experiments, story)
        if shown is not None:
            return shown
    for candidates, name in ((flags + own, "every line that got another answer"), (rest, "every factor as a whole")):
        units = list(dict.fromkeys(candidates))
        if not units:
            continue
        alone = units[0] if len(units) <= 3 else None
        if alone is not None and sufficient(frozenset({alone})):
            return _cause((alone,), found, undone, story)
        if len(units) > 1 and sufficient(frozenset(units)):
            return _cause(smallest(units, sufficient), found, undone, story)
        story.ruled_out.append(f"{name}, held fixed, changes nothing")
    shown = None if operators_first else _operator(until, steps, experiments, story)
    return shown or story.unknown()


def _watched(steps: int, experiments: Experiments, story: _Story) -> Pair:
    pair = Pair()
    for tried in range(1, _WATCHED + 1):
        pair = experiments.pair(Setting(steps=steps, watch=True), again=tried > 1)
        if pair.first is not None and not pair.failed:
            if tried > 1:
                story.evidence.append(f"it shows in some pairs only: the gate's own and 1 of {tried} more")
            return pair
    story.evidence.append(f"it did not come back in {_WATCHED} more pairs: a rare race, or load on the machine")
    return pair


def _cause(units: Sequence[Unit], found: Sequence[Suspect], undone: Sequence[Undone], story: _Story) -> Diagnosis:
    """The diagnosis of one unit or several: the first is the cause, the others are needed too."""
    told = [_told(unit, found, undone, story) for unit in units]
    return replace(told[0], also=tuple(told[1:]))


def _told(unit: Unit, found: Sequence[Suspect], undone: Sequence[Undone], story: _Story) -> Diagnosis:
    factor = BY_NAME[unit.factor]
    suspect = next((item for item in found if item.unit == unit), None) or next(
        (item for item in found if item.unit.factor == unit.factor), None
    )
    flag = next((item for item in undone if item.site == unit.site), None) if unit.factor == "flags" else None
    site = unit.site or (suspect.use.site if suspect is not None else ("", 0))
    call = flag.flag if flag is not None else "" if suspect is None else suspect.use.call or suspect.use.source
    seen = [] if suspect is None else [_answers(suspect)]
    return Diagnosis(
        cause=factor.cause,
        factor=factor.name,
        call=call,
        file=site[0],
        line=site[1],
        confirmed=True,
        message=_sentence(factor, call, site),
        evidence=(
            *story.evidence,
            *seen,
            f"confirmed: {factor.held}, two runs are bitwise identical up to step {max(story.first.step, 0)}",
        ),
        remedy=factor.remedy,
        ruled_out=tuple(story.ruled_out),
    )


def _sentence(factor: Factor, call: str, site: Site) -> str:
    where = f" in {site[0]}:{site[1]}" if site[0] else ""
    return f"{call or 'the training'}{where} {factor.did}"


def _answers(suspect: Suspect) -> str:
    use, other = suspect.use, suspect.other
    if other is None:
        return f"{use.source} was called in step {use.step} of one run only"
    if other.count != use.count:
        return f"{use.source} was called {use.count} times in step {use.step} of one run and {other.count} times in the other's"
    return f"{use.source} gave other answers in the two runs, in step {use.step} first"


def _operator(until: Divergence, steps: int, experiments: Experiments, story: _Story) -> Diagnosis | None:
    """The operator that got the same bits and gave others, replayed on its own inputs; None where no record says so."""
    pair = experiments.pair(Setting(steps=steps, operators=True))
    shown = culprit(*pair.operators)
    if shown is None:
        story.ruled_out.append(f"{len(pair.operators[0])} operators of step {max(until.step, 0)} agree")
        return None
    if shown.operator is None:
        story.evidence.append(_between(shown))
        return None
    record = shown.operator
    replayed = experiments.pair(Setting(steps=steps, operators=True, replay=(record.name, record.count)))
    distinct = next((item.distinct for item in replayed.operators[0] if item.distinct is not None), None) or {}
    return Diagnosis(
        cause="nondeterministic-op",
        op=record.name,
        file=record.site[0],
        line=record.site[1],
        call=record.name,
        confirmed=distinct.get("as-trained", 0) > 1,
        message=_operator_sentence(record),
        evidence=(*story.evidence, f"{shown.equal_before} operators before it agree in both runs", *_replays(distinct)),
        remedy="use its deterministic form (torch.use_deterministic_algorithms), or an operator that adds in a fixed order",
        ruled_out=tuple(story.ruled_out),
    )


def _operator_sentence(record: OperatorCall) -> str:
    where = f", the {record.phase} of {record.site[0]}:{record.site[1]}," if record.site[0] else ""
    return f"{record.name}{where} got the same bits in both runs and gave other bits"


def _replays(distinct: dict[str, int] | object) -> list[str]:
    if not isinstance(distinct, dict) or not distinct:
        return []
    ways = {
        "as-trained": "as it was called",
        "one-thread": "with one thread",
        "deterministic": "with the flag on",
        "default": "with the flag off",
    }
    told = [f"{ways.get(name, name)} {count or 'it raises'}" for name, count in distinct.items()]
    return [f"distinct outputs of {REPLAYS} replays on its own inputs: {', '.join(told)}"]


def _between(shown: Culprit) -> str:
    after = shown.after.name if shown.after is not None else "the beginning of the step"
    before = shown.before.name if shown.before is not None else "its end"
    return f"something that torch does not dispatch wrote between {after} and {before}"
