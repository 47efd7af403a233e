"""Which operator it was: the first that got the same bits in both runs and gave other bits.

Records are aligned by process, phase, line, operator and which time that was, never by position:
one operator more in a run shifts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repro_gate.diagnosis.model import Diagnosis, OperatorCall, ShownOperator
from repro_gate.trace.notebook import place

# in flight: what a record holds may not be there yet
_COLLECTIVES = (
    "c10d.",
    "_c10d_functional.",
    "c10d_functional.",
)
_WAYS = {
    "as-trained": "as it was called",
    "one-thread": "with one thread",
    "deterministic": "with the flag on",
    "default": "with the flag off",
}


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """What the records say. `operator` is None where something that torch does not dispatch wrote:
    `between` says where."""

    operator: OperatorCall | None
    equal_before: int
    between: str = ""


def culprit(first: Sequence[OperatorCall], second: Sequence[OperatorCall]) -> Culprit | None:
    """The first record that explains the divergence, in the order of the first run; None where all
    that can be compared is equal."""
    twins = dict(_keyed(second))
    equal, previous = 0, None
    for key, record in _keyed(first):
        twin = twins.get(key)
        if twin is None or record.name.startswith(_COLLECTIVES):
            continue
        if record.inputs != twin.inputs or (record.outputs != twin.outputs and record.simple):
            after = "the beginning of the step" if previous is None else previous.name
            between = (
                f"something that torch does not dispatch wrote between {after} and {record.name}; "
                f"{equal:,} operators before it agree"
            )
            return Culprit(operator=None, equal_before=equal, between=between)
        if record.outputs != twin.outputs:
            return Culprit(operator=record, equal_before=equal)
        equal, previous = equal + 1, record
    return None


def around(
    first: Sequence[OperatorCall], second: Sequence[OperatorCall], most: int = 5
) -> tuple[ShownOperator, ...]:
    """The first operator that gave other bits, with as many as `most` before and behind it; empty
    where none did."""
    twins = dict(_keyed(second))
    paired = [(record, twins[key]) for key, record in _keyed(first) if key in twins]
    at = next(
        (number for number, (one, other) in enumerate(paired) if one.outputs != other.outputs), None
    )
    return tuple(
        ShownOperator(
            name=one.name,
            phase=one.phase,
            file=one.site[0],
            line=one.site[1],
            same_inputs=one.inputs == other.inputs,
            same_outputs=one.outputs == other.outputs,
        )
        for one, other in (paired[max(0, at - most) : at + most + 1] if at is not None else ())
    )


def told_operator(
    shown: Culprit, record: OperatorCall, distinct: Mapping[str, int], replays: int
) -> Diagnosis:
    """The diagnosis of an operator; `distinct` says how many outputs its replays gave, by how they
    were run (0: it raised)."""
    where = f", the {record.phase} of {place(*record.site)}," if record.site[0] else ""
    replayed = ", ".join(
        f"{_WAYS.get(name, name)} {count or 'it raises'}" for name, count in distinct.items()
    )
    evidence = [f"{shown.equal_before:,} operators before it agree in both runs"]
    if replayed:
        evidence.append(f"distinct outputs of {replays} replays on its own inputs: {replayed}")
    return Diagnosis(
        cause="nondeterministic-op",
        op=record.name,
        file=record.site[0],
        line=record.site[1],
        call=record.name,
        confirmed=distinct.get("as-trained", 0) > 1,
        message=f"{record.name}{where} got the same bits in both runs and gave other bits",
        evidence=tuple(evidence),
        remedy="use its deterministic form (torch.use_deterministic_algorithms), or an operator "
        "that adds in a fixed order",
    )


def _keyed(records: Sequence[OperatorCall]) -> list[tuple[tuple[object, ...], OperatorCall]]:
    seen: Counter[tuple[object, ...]] = Counter()
    keyed: list[tuple[tuple[object, ...], OperatorCall]] = []
    for record in records:
        key = (record.process, record.phase, record.node, record.site, record.name)
        seen[key] += 1
        keyed.append(((*key, seen[key]), record))
    return keyed
