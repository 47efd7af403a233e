"""Finds the uses of factors that differed between two watched runs before they diverged, likeliest
first, and the lines whose values differed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from repro_gate.diagnosis.model import Diagnosis, ShownUse, Unit, numbered
from repro_gate.escape import quoted
from repro_gate.factors import BY_NAME, FACTORS, LEFTOVERS, Factor, Site
from repro_gate.trace.format import (
    ANY_ORDER,
    ASKED,
    HANDED,
    OF_MACHINE,
    SET_OF_TENSORS,
    SHARED,
    TIMED,
)
from repro_gate.trace.model import Used
from repro_gate.trace.notebook import place

Uses = Sequence[Used]  # of one run
_MOST = 200  # uses that a report shows
_RANK = {factor.name: index for index, factor in enumerate(FACTORS)}
_PLACE = attrgetter("process", "factor", "source", "site", "direct", "step")


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A line whose answers differed. `use` is its first differing use, `other` the other run's use
    at that place (None if it has none)."""

    unit: Unit
    use: Used
    other: Used | None


def suspects(first: Uses, second: Uses, until: int) -> list[Suspect]:
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
    twins = numbered(second, _PLACE)
    pairs = [
        (use, twins.pop(key, None)) for key, use in numbered(first, _PLACE).items()
    ]
    pairs += [(use, None) for use in twins.values()]
    suspected = dict[object, Suspect]()
    for use, twin in sorted(pairs, key=lambda pair: _later(pair[0])):
        is_same = twin and (twin.count, twin.digest) == (use.count, use.digest)
        if use.step <= until and not is_same:
            unit = _unit(use, reordered)
            suspect = Suspect(unit=unit, use=use, other=twin)
            suspected.setdefault((unit, use.outside), suspect)
    read = {item.use.source + ASKED for item in suspected.values()}

    def rank(item: Suspect) -> tuple[object, ...]:
        use = item.use
        factor: float = _RANK[item.unit.factor]
        if use.source.startswith(OF_MACHINE):  # psutil reads both, one for the other
            factor = _RANK["process"] + 0.5 * (use.factor == "files")
        has_no_line = not use.site[0]
        return has_no_line, remoteness(use), factor, use.step, use.site

    found = (item for item in suspected.values() if item.use.source not in read)
    return sorted(found, key=rank)


def line_uses(first: Uses, second: Uses) -> tuple[ShownUse, ...]:
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


def started(uses: Uses, factor: str) -> list[Used]:
    """Return the lines that used a factor, whether or not answers differed: first lines that take
    results in the order of their arrival, then calls by the training's own code; the latest
    first."""
    named = [use for use in uses if use.factor == factor and use.site[0]]
    return sorted(
        [use for use in named if not use.source.endswith(SHARED)],
        key=lambda use: (not use.source.endswith(HANDED), not use.direct, -use.step),
    )


def answers(suspect: Suspect) -> str:
    """Return how the answers of the two runs differed, in a clause with both digests."""
    use = suspect.use
    other = suspect.other
    when = "before the first step" if use.step < 0 else f"in step {use.step}"
    if other is not None and use.factor == "autotune":
        return f"{when} {use.call} was chosen in one run, {other.call} in the other"
    called = f"{when} {use.source} was called"
    if other is None and use.factor == LEFTOVERS.name:
        return f"{use.source}, which an earlier run wrote"
    if use.source.endswith(TIMED):
        return f"{when} {use.source}"
    if other is None:
        return f"{called} in one run only"
    if other.count != use.count:
        return f"{called} {use.count:,} times in one run, {other.count:,} times in the other"
    return f"{when} {use.source} returned {use.digest} in one run, {other.digest} in the other"


def located(
    factor: Factor, site: Site, call: str, did: str, *evidence: str
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
        message=f"{quoted(call) or 'the training'}{where} {did}",
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


def shared(suspected: Sequence[Suspect]) -> list[Suspect]:
    """Return the lines that read other values of what processes share: turns pin only when
    processes that wait for each other run."""
    return [item for item in suspected if item.use.source.endswith(SHARED)]


def left_over(uses: Uses) -> list[Suspect]:
    """Return the lines of an agreeing run that read what an earlier run left behind. The gate's
    first run found nothing there, and no later run can start like it."""
    read = [
        Suspect(unit=Unit(use.factor, use.site), use=use, other=None)
        for use in uses
        if use.factor == LEFTOVERS.name and not use.source.endswith(ASKED)
    ]
    return outside(read)


def differing_lines(first: Uses, second: Uses) -> Iterator[Used]:
    """Yield the lines after which two runs had different values, in order; where they took
    different branches, the line before, as the last.

    Each process is compared with its twin by position: as long as both ran the same lines. A
    process that trains comes before its workers.
    """
    names = {item.process for item in first}
    for process in sorted(names, key=lambda name: (name != "main", name)):
        ours, theirs = (
            [item for item in lines if item.process == process]
            for lines in (first, second)
        )
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one.site != other.site:
                yield ours[max(index - 1, 0)]
                break
            if one.digest != other.digest:
                yield one


def _unit(use: Used, reordered: Collection[tuple[object, ...]]) -> Unit:
    """Return the unit that pins a use. If a command printed the same lines in a different order,
    its programs ran in parallel."""
    if use.factor == "commands" and (use.process, use.site, use.source) in reordered:
        return Unit("parallel", use.site)
    by_line = BY_NAME[use.factor].by_line and use.source != SET_OF_TENSORS
    return Unit(use.factor, use.site if by_line and use.site[0] else None)


def _later(use: Used) -> tuple[bool, int, bool]:
    """Return a sort key that puts the most telling use of a unit first: one that takes results in
    the order of their arrival or reads what is shared, an early one, a direct one."""
    return not use.source.endswith((HANDED, SHARED)), use.step, not use.direct
