"""Which operator it was: the first that got the same bits in both runs and gave other bits.

Records are aligned by process, phase, line, operator and which time that was, never by position: one operator more in a run shifts
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from repro_gate.diagnosis.model import OperatorCall

_COLLECTIVES = ("c10d.", "_c10d_functional.", "c10d_functional.")  # in flight: what a record holds may not be there yet


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """What the records say. `operator` is None where something that torch does not dispatch wrote between `after` and `before`."""

    operator: OperatorCall | None
    equal_before: int
    after: OperatorCall | None = None
    before: OperatorCall | None = None


def culprit(first: Sequence[OperatorCall], second: Sequence[OperatorCall]) -> Culprit | None:
    """The first record that explains the divergence, in the order of the first run; None where all that can be compared is equal."""
    twins = dict(_keyed(second))
    equal, previous = 0, None
    for key, record in _keyed(first):
        twin = twins.get(key)
        if twin is None or record.name.startswith(_COLLECTIVES):
            continue
        if record.inputs != twin.inputs:
            return Culprit(operator=None, equal_before=equal, after=previous, before=record)
        if record.outputs != twin.outputs:
            behind = record.simple
            return Culprit(operator=None if behind else record, equal_before=equal, after=previous, before=record if behind else None)
        equal, previous = equal + 1, record
    return None


def _keyed(records: Sequence[OperatorCall]) -> list[tuple[tuple[object, ...], OperatorCall]]:
    seen: Counter[tuple[object, ...]] = Counter()
    keyed: list[tuple[tuple[object, ...], OperatorCall]] = []
    for record in records:
        key = (record.process, record.phase, record.node, record.site, record.name)
        seen[key] += 1
        keyed.append(((*key, seen[key]), record))
    return keyed
