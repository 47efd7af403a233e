"""Which uses of which factors differed between two watched runs before they diverged, likeliest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from repro_gate.diagnosis.model import Unit, Use
from repro_gate.factors import BY_NAME, FACTORS
from repro_gate.trace.format import ANY_ORDER, ASKED

_RANK = {factor.name: index for index, factor in enumerate(FACTORS)}


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A line whose answers differed. `use` is its first differing one, `other` the second run's at that place (None: it made none)."""

    unit: Unit
    use: Use
    other: Use | None


def suspects(first: Sequence[Use], second: Sequence[Use], until: int) -> list[Suspect]:
    """The lines whose answers differed at or before step `until`: the training's own lines first, then by factor and time."""
    found: dict[Unit, Suspect] = {}
    same_lines = set(_any_order(first)) & set(_any_order(second))
    twins = _by_place(second)
    for key, use in _by_place(first).items():
        twin = twins.pop(key, None)
        if use.step <= until and (twin is None or (twin.count, twin.digest) != (use.count, use.digest)):
            _keep(found, Suspect(unit=_unit(use, same_lines), use=use, other=twin))
    for use in twins.values():
        if use.step <= until:
            _keep(found, Suspect(unit=_unit(use, same_lines), use=use, other=None))
    return sorted(
        _read_rather_than_asked_for(found),
        key=lambda item: (item.use.site == ("", 0), _RANK.get(item.unit.factor, 99), item.use.step, item.unit.site or ("", 0)),
    )


def _read_rather_than_asked_for(found: dict[Unit, Suspect]) -> list[Suspect]:
    """Without the lines that only asked whether a file is there, where another line read it."""
    read = {item.use.source for item in found.values()}
    return [item for item in found.values() if not item.use.source.endswith(ASKED) or item.use.source.removesuffix(ASKED) not in read]


def _by_place(uses: Sequence[Use]) -> dict[tuple[object, ...], Use]:
    """By process, line, source, step. Two uses in one place are one: their digests are joined."""
    merged: dict[tuple[object, ...], Use] = {}
    seen: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for use in uses:
        key = (use.process, use.factor, use.source, use.site, use.step)
        seen[key] += 1
        numbered = (*key, seen[key])
        merged[numbered] = use
    return merged


def _any_order(uses: Sequence[Use]) -> list[tuple[object, ...]]:
    """What commands printed, whatever the order of its lines."""
    return [(use.process, use.site, use.source.removesuffix(ANY_ORDER), use.digest) for use in uses if use.source.endswith(ANY_ORDER)]


def _unit(use: Use, same_lines: Collection[tuple[object, ...]]) -> Unit:
    if use.factor == "commands" and any(item[:3] == (use.process, use.site, use.source) for item in same_lines):
        return Unit("parallel", use.site)
    return Unit(use.factor, use.site if BY_NAME[use.factor].by_line else None)


def _keep(found: dict[Unit, Suspect], suspect: Suspect) -> None:
    known = found.get(suspect.unit)
    if known is None or suspect.use.step < known.use.step:
        found[suspect.unit] = suspect
