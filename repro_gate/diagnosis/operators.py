"""Finds the first operator that got the same bits in the same form in both runs and returned
different bits.

Records are paired by process, phase, line, operator and how often it was called before, never by
position, so that an extra operator in one run shifts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from repro_gate.diagnosis.model import Diagnosis, ShownOperator, numbered
from repro_gate.trace.model import OperatorLine
from repro_gate.trace.notebook import place

Operators = Sequence[OperatorLine]  # of one run
# Collectives are asynchronous: their output may not be complete when it is recorded.
_COLLECTIVES = ("c10d.", "_c10d_functional.", "c10d_functional.")
# what to do if native code gives something else in each run
NATIVE = (
    "seed the library that this line calls, or take its random part out of the training"
)
REPLAYS = 30
_AROUND = 5
_WAYS = {
    "as-trained": "as it was called",
    "one-thread": "with one thread",
    "deterministic": "with the flag on",
    "default": "with the flag off",
}


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first explanation in the records. If `after` names the operator before it, code that
    torch does not dispatch made what this operator reads."""

    operator: OperatorLine
    twin: OperatorLine  # in the second run
    equal_before: int
    after: str = ""


def culprit(
    first: Operators, second: Operators, *, same_build: bool = True
) -> Culprit | None:
    """Return the first record that explains the divergence, in the order of the first run; None if
    all records that can be compared are equal. An element-wise operator of the `same_build` of
    torch gives the same bits of the same inputs."""
    equal = 0
    previous = "the beginning of the step"
    for record, twin in _paired(first, second):
        if record.op.startswith(_COLLECTIVES):
            continue
        is_other = record.outputs != twin.outputs
        is_innocent = (same_build and record.simple) or record.form != twin.form
        was_made = record.inputs != twin.inputs or (is_other and is_innocent)
        if was_made or is_other:
            after = previous if was_made else ""
            return Culprit(operator=record, twin=twin, equal_before=equal, after=after)
        equal += 1
        previous = record.op
    return None


def around(first: Operators, second: Operators) -> tuple[ShownOperator, ...]:
    """Return the first operator whose outputs differ between the two runs, with its neighbours in
    order of execution; empty if none differs."""
    paired = _paired(first, second)
    differs = (
        number
        for number, (one, other) in enumerate(paired)
        if one.outputs != other.outputs
    )
    at = next(differs, None)
    shown = paired[max(0, at - _AROUND) : at + _AROUND + 1] if at is not None else ()
    return tuple(
        ShownOperator(
            name=one.op,
            phase=one.phase,
            file=one.site[0],
            line=one.site[1],
            same_inputs=(one.inputs, one.form) == (other.inputs, other.form),
            same_outputs=one.outputs == other.outputs,
        )
        for one, other in shown
    )


def nondeterministic(found: Culprit, distinct: Mapping[str, int]) -> Diagnosis:
    """Return the diagnosis of an operator. `distinct` is how many different outputs its replays
    returned, by how they were run (0: it raised)."""
    record = found.operator
    where = f", the {record.phase} of {place(*record.site)}," if record.site[0] else ""
    replayed = ", ".join(
        f"{_WAYS.get(name, name)} {count or 'it raises'}"
        for name, count in distinct.items()
    )
    evidence = [f"{found.equal_before:,} operators before it agree in both runs"]
    if replayed:
        evidence.append(
            f"different outputs in {REPLAYS} replays on its own inputs: {replayed}"
        )
    return Diagnosis(
        cause="nondeterministic-op",
        op=record.op,
        file=record.site[0],
        line=record.site[1],
        call=record.op,
        confirmed=distinct.get("as-trained", 0) > 1,
        message=f"{record.op}{where} got the same bits in both runs but returned different bits",
        evidence=tuple(evidence),
        remedy="use its deterministic form (torch.use_deterministic_algorithms), or an operator "
        "that adds in a fixed order",
    )


def undispatched(found: Culprit) -> Diagnosis:
    """Return the diagnosis that code which torch does not dispatch made what an operator reads: the
    likeliest cause if nothing else explains the divergence. On a device only a kernel writes; what
    lies in the memory of the CPU may come from anywhere, so that its cause is unknown."""
    reader = found.operator
    where = f" in {place(*reader.site)}" if reader.site[0] else ""
    is_kernel = reader.device != "cpu"
    code = (
        "Triton or CUDA kernel, an extension" if is_kernel else "library, an extension"
    )
    return Diagnosis(
        cause="nondeterministic-op" if is_kernel else "unknown",
        file=reader.site[0],
        line=reader.site[1],
        call=reader.op,
        message=f"code that torch does not dispatch (a {code}) made what {reader.op} reads{where}, "
        "and something else in each run",
        evidence=(
            f"between {found.after} and {reader.op}, behind {found.equal_before:,} that agree",
        ),
        remedy="in a kernel, add in a fixed order: no atomic addition of floating-point numbers"
        if is_kernel
        else NATIVE,
    )


def _paired(
    first: Operators, second: Operators
) -> list[tuple[OperatorLine, OperatorLine]]:
    """Return the records of the first run, each with its twin in the second. Records without a twin
    are left out."""
    identity = attrgetter("process", "phase", "node", "site", "op")
    one, other = (numbered(records, identity) for records in (first, second))
    return [(record, other[key]) for key, record in one.items() if key in other]
