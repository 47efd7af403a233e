"""Finds the uses of factors that differed between two watched runs before they diverged, likeliest
first, and the first line whose values differed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from repro_gate.diagnosis.model import Diagnosis, ShownUse, Unit, numbered
from repro_gate.factors import BY_NAME, FACTORS, Factor, Site
from repro_gate.trace.format import ANY_ORDER, ASKED, HANDED, SET_OF_TENSORS
from repro_gate.trace.model import Used
from repro_gate.trace.notebook import place

Uses = Sequence[Used]  # of one run
_MOST = 200  # uses that a report shows
_RANK = {factor.name: index for index, factor in enumerate(FACTORS)}


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A line whose answers differed. `use` is its first differing use, `other` the other run's use
    at that place (None if it has none)."""

    unit: Unit
    use: Used
    other: Used | None


def suspects(
    first: Uses,
    second: Uses,
    until: int,
) -> list[Suspect]:
    """Return the lines whose answers differed at or before step `until`: first calls by the
    training's own code, then calls by libraries on its behalf, then calls during an import; within
    these by factor and time. A line that only asked whether a file exists is dropped if another
    line read it."""
    # what commands printed, compared without regard to the order of its lines
    printed = [
        {
            (use.process, use.site, use.source.removesuffix(ANY_ORDER), use.digest)
            for use in uses
            if use.source.endswith(ANY_ORDER)
        }
        for uses in (first, second)
    ]
    reordered = {item[:3] for item in printed[0] & printed[1]}
    twins = _by_place(second)
    pairs = [(use, twins.pop(key, None)) for key, use in _by_place(first).items()]
    pairs += [(use, None) for use in twins.values()]
    suspected: dict[object, Suspect] = {}
    for use, twin in sorted(pairs, key=lambda pair: _later(pair[0])):
        is_same = twin and (twin.count, twin.digest) == (use.count, use.digest)
        if use.step <= until and not is_same:
            unit = _unit(use, reordered)
            suspect = Suspect(unit=unit, use=use, other=twin)
            suspected.setdefault((unit, use.outside), suspect)
    read = {item.use.source + ASKED for item in suspected.values()}

    def rank(item: Suspect) -> tuple[object, ...]:
        use = item.use
        factor = _RANK[item.unit.factor]
        has_no_line = not use.site[0]
        return has_no_line, remoteness(use), factor, use.step, use.site

    found = (item for item in suspected.values() if item.use.source not in read)
    return sorted(found, key=rank)


def line_uses(
    first: Uses,
    second: Uses,
) -> tuple[ShownUse, ...]:
    """Return each line's uses of each factor, over all steps. Those whose answers differed come
    first, then those with a line of the training."""
    differing = {_line_of(item.use) for item in suspects(first, second, until=1 << 62)}
    counts = Counter(dict.fromkeys(differing, 0))
    for use in first:
        counts[_line_of(use)] += use.count
    uses = [
        replace(line, count=count, differs=line in differing)
        for line, count in counts.items()
    ]
    uses.sort(
        key=lambda it: (not it.differs, not it.file, _RANK[it.factor], it.file, it.line)
    )
    return tuple(uses[:_MOST])


def remoteness(use: Used) -> int:
    """Return how directly a line used a factor: 0 by itself, 1 through a library that it called, 2
    through a module that it imported."""
    return 2 if use.call.startswith(("import ", "from ")) else 0 if use.direct else 1


def _line_of(use: Used) -> ShownUse:
    file, line = use.site
    call = use.call or use.source
    return ShownUse(factor=use.factor, call=call, file=file, line=line)


def started(
    uses: Uses,
    factor: str,
) -> list[Used]:
    """Return the lines that used a factor, whether or not answers differed: first lines that take
    results in the order of their arrival, then calls by the training's own code; the latest
    first."""
    own = [use for use in uses if use.factor == factor and use.site[0]]
    return sorted(
        own,
        key=lambda use: (not use.source.endswith(HANDED), not use.direct, -use.step),
    )


def answers(suspect: Suspect) -> str:
    """Return how the answers of the two runs differed, in a sentence with both digests."""
    use = suspect.use
    other = suspect.other
    when = "before the first step" if use.step < 0 else f"in step {use.step}"
    called = f"{when} {use.source} was called"
    if other is None:
        return f"{called} in one run only"
    if other.count != use.count:
        return f"{called} {use.count:,} times in one run, {other.count:,} times in the other"
    return f"{when} {use.source} returned {use.digest} in one run, {other.digest} in the other"


def located(
    factor: Factor,
    site: Site,
    call: str,
    did: str,
    *evidence: str,
) -> Diagnosis:
    """Return the diagnosis that a factor is the cause. `did` completes the sentence about its
    line."""
    where = f" in {place(*site)}" if site[0] else ""
    return Diagnosis(
        cause=factor.cause,
        factor=factor.name,
        call=call,
        file=site[0],
        line=site[1],
        confirmed=True,
        message=f"{call or 'the training'}{where} {did}",
        evidence=evidence,
        remedy=factor.remedy,
    )


def outside(suspected: Sequence[Suspect]) -> list[Suspect]:
    """Return the suspects that nothing can pin: lines of the training whose answers came from
    outside, not during an import."""
    return [
        item
        for item in suspected
        if item.use.outside and item.use.site[0] and remoteness(item.use) < 2
    ]


def first_difference(
    first: Uses,
    second: Uses,
) -> Used | None:
    """Return the first line after which two runs had different values or took different branches;
    None if there is none.

    Each process is compared with its twin by position: up to the first difference both ran the same
    lines. A process that trains comes before its workers.
    """
    names = {item.process for item in first}
    for process in sorted(names, key=lambda name: (name != "main", name)):
        ours, theirs = (
            [item for item in lines if item.process == process]
            for lines in (first, second)
        )
        pairs = [*zip(ours, theirs, strict=False)]
        for index, (one, other) in enumerate(pairs):
            if one.site != other.site:
                return ours[max(index - 1, 0)]  # the line before branched differently
            if one.digest == other.digest:
                continue
            if one.source == other.source:
                return one
            # A set is in a different order: return the line that made it.
            made = one.source, other.source
            return next(x for x, y in pairs if (x.source, y.source) == made)
    return None


def _by_place(uses: Uses) -> dict[tuple[object, ...], Used]:
    """Return the uses by process, factor, source, line and step."""
    return numbered(
        uses,
        lambda it: (it.process, it.factor, it.source, it.site, it.direct, it.step),
    )


def _unit(
    use: Used,
    reordered: Collection[tuple[object, ...]],
) -> Unit:
    """Return the unit that pins a use. If a command printed the same lines in a different order,
    its programs ran in parallel."""
    printed = (use.process, use.site, use.source)
    if use.factor == "commands" and printed in reordered:
        return Unit("parallel", use.site)
    by_line = BY_NAME[use.factor].by_line and use.source != SET_OF_TENSORS
    return Unit(use.factor, use.site if by_line and use.site[0] else None)


def _later(use: Used) -> tuple[bool, int, bool]:
    """Return a sort key that puts the most telling use of a unit first: one that takes results in
    the order of their arrival, an early one, a direct one."""
    return not use.source.endswith(HANDED), use.step, not use.direct
