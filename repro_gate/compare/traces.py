"""Compares two runs bit for bit: where they first diverge in order of execution, how many tensors
differ, and how far.

Blocks of two traces are paired by (step, kind, at), rows of two blocks by name, processes of two
runs by their key. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from repro_gate.compare.distances import (
    Key,
    key_of,
    loss_gaps,
    losses_of,
    weights,
    with_distance,
)
from repro_gate.compare.heat_map import Marks, heat_map, measured_over_steps
from repro_gate.compare.model import KINDS, STEPS, Comparison, Divergence, Tally, Value
from repro_gate.errors import Inconclusive
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.format import DIGEST_BYTES, DIGESTS
from repro_gate.trace.model import Trace

# recorded before the optimizer's step; the rest may be the state at the end
WITHIN_A_STEP = (
    "rng",
    "batch",
    "loss",
    "gradient",
)
ONLY_FIRST, ONLY_SECOND = "recorded in the first run only", "recorded in the second run only"


def compare_runs(
    a: Sequence[Trace],
    b: Sequence[Trace],
    artifacts: Sequence[Divergence] = (),
    artifact_leaves: int = 0,
) -> Comparison:
    """Compare all processes of two runs. `artifacts` are differences of declared artifacts, found
    elsewhere; they come last in execution.

    `b` may carry the distances that its probe measured against `a`; the figures are attached where
    they belong.
    """
    first = processes(a)
    second = measured_alike(first, processes(b))
    _same_digest(first, second)
    steps = max((len(trace.steps) for trace in [*first.values(), *second.values()]), default=0)
    tally = _Tally(Marks(steps))
    found = _divergences(first, second, tally)
    found += [(steps, place, item) for place, item in enumerate(artifacts)]
    earliest = min(found, key=lambda item: item[:2])[2] if found else None
    measured = _measured(second)
    final = {
        (label, name)
        for label, step, kind, name in measured
        if kind == "parameter" and step == len(second[label].steps)
    }
    main = next(iter(first), "")
    both = [losses_of(run[main]) if main in run else {} for run in (first, second)]
    common = sorted(both[0].keys() & both[1])
    losses = tuple((step, both[0][step], both[1][step]) for step in common)
    by_kind = tally.by_kind()
    if tally.marks.differing and not tally.by_step:
        tally.marks.leave_out("rng")
    if artifact_leaves or artifacts:
        names = {item.name for item in artifacts}
        by_kind["artifact"] = Tally(max(artifact_leaves, len(names)), len(names))
    tensors = [figures for kind, figures in by_kind.items() if kind not in ("rng", "loss")]
    comparison = Comparison(
        identical=not found,
        steps=steps,
        tensors=sum(item.tensors for item in tensors),
        differing=sum(item.differing for item in tensors),
        first_divergence=None if earliest is None else with_distance(earliest, measured),
        by_kind={kind: by_kind[kind] for kind in KINDS if kind in by_kind},
        by_step=tuple(sorted(tally.by_step.items())),
        # what comes after the last step is no step
        differing_steps=sum(0 <= step < steps for step in tally.by_step),
        losses=losses,
        weights=weights(second),
        loss_gaps=loss_gaps(first, second),
        unmatched=tally.unmatched,
        unmeasured=sum(
            kind == "parameter" and (label, name) not in final for label, kind, name in tally.apart
        ),
        heat_map=heat_map(tally.marks),
    )
    return measured_over_steps(comparison, second, again=False)


def measured_alike(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> dict[str, Trace]:
    """Return the second run's processes, without the distances of those that took more or fewer
    steps than their counterparts: a probe measures what its run ends with, which is then the state
    of another step."""
    alike = {
        label: label in first and len(first[label].steps) == len(trace.steps)
        for label, trace in second.items()
    }
    return {
        label: trace if alike[label] else replace(trace, distances=[])
        for label, trace in second.items()
    }


def with_replay(comparison: Comparison, second: Sequence[Trace]) -> Comparison:
    """The comparison with what was measured when the same training was run twice again, `second`
    beside the first."""
    found, first = processes(second), comparison.first_divergence
    known = replace(
        comparison,
        first_divergence=None if first is None else with_distance(first, _measured(found)),
    )
    return measured_over_steps(known, found, again=True)


def _same_digest(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> None:
    """Raises Inconclusive where a process digested tensors in one way in the first run and in
    another in the second."""
    for label in first.keys() & second.keys():
        names = [named_digest([trace]) for trace in (first[label], second[label])]
        if first[label].facts.get("digest") != second[label].facts.get("digest"):
            raise other_digest("a process", *names)


def named_digest(traces: Iterable[Trace]) -> str:
    """What digested the tensors of these processes: a name of DIGESTS, several joined by `+`, or
    empty. What a trace says is untrusted."""
    found = {trace.facts.get("digest", "") for trace in traces}
    return "+".join(sorted(name if name in DIGESTS else "unknown" for name in found if name))


def other_digest(what: str, first: str, second: str) -> Inconclusive:
    """What was digested by two algorithms tells nothing about bits."""
    known = (*DIGESTS, "unknown")  # a report may say anything
    first, second = (
        name if name and set(name.split("+")) <= set(known) else "an unnamed digest"
        for name in (first, second)
    )
    return Inconclusive(
        f"{what}: tensors were digested by {first} in the first run and by {second} in the second",
        remedy="use one Python version, and install the `xxhash` package beside torch where the "
        "gate's own does not fit",
        reason_id="determinism/other-digest",
    )


def _divergences(
    first: Mapping[str, Trace], second: Mapping[str, Trace], tally: _Tally
) -> list[tuple[int, float, Divergence]]:
    """(step, place in the process's order, what differs) of the first differences of each
    process."""
    found: list[tuple[int, float, Divergence]] = []
    for label in dict.fromkeys([*first, *second]):
        if label in first and label in second:
            found += (
                (item.step, place, item)
                for place, item in _compare_process(label, first[label], second[label], tally)
            )
        else:
            detail = ONLY_FIRST if label in first else ONLY_SECOND
            missing = Divergence(
                step=-1, kind="parameter", name=f"process {label}", process=label, detail=detail
            )
            found.append((-1, -1, missing))
            tally.unmatched = tally.unmatched or missing
    kinds = {kind for _, kind, _ in tally.marks.differing}
    if kinds == {"rng"} and all(item.kind == "rng" for _, _, item in found):
        # states of generators alone, which no recorded number depends on
        found, tally.unmatched, tally.by_step = [], None, {}
    # more steps in one run: after whatever differs in the steps that both took
    for label in first.keys() & second.keys():
        counts = len(first[label].steps), len(second[label].steps)
        if counts[0] != counts[1]:
            found.append((min(counts), math.inf, unequal_length(*counts, label)))
            tally.unmatched = tally.unmatched or found[-1][2]
    return found


def _measured(second: Mapping[str, Trace]) -> dict[tuple[str, int, str, str], Measured]:
    """What the second run's probe measured, by process, step, kind and name."""
    measured: dict[tuple[str, int, str, str], Measured] = {}
    for label, trace in second.items():
        for item in trace.distances:
            measured[label, item.step, item.kind, item.name] = item
            # what is digested after the last step is what was kept
            if item.step == len(trace.steps) - 1:
                measured[label, item.step + 1, item.kind, item.name] = item
    return measured


def first_difference(label: str, a: Mapping[Key, Block], block: Block) -> Divergence | None:
    """Whether a block of the second run, as it arrives, differs from its counterpart. A missing one
    is left to the whole comparison."""
    counterpart = a.get(key_of(block))
    return None if counterpart is None else next(_differences(label, counterpart, block), None)


def processes(traces: Sequence[Trace]) -> dict[str, Trace]:
    """The processes of a run that recorded something, by label: their key, numbered by command line
    and start where several share one."""
    labelled: dict[str, Trace] = {}
    numbers: dict[str, int] = {}
    trained = [trace for trace in traces if trace.trained]
    for trace in sorted(trained, key=lambda item: (len(item.key), item.key, item.argv)):
        label, number = trace.key, numbers.get(trace.key, 1)
        while label in labelled:
            number += 1
            label = f"{trace.key}#{number}"
        labelled[label], numbers[trace.key] = trace, number
    return labelled


class _Tally:
    """Counts what differs, without touching each row of blocks that are equal."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.by_step: dict[int, int] = {}
        self.apart: dict[
            tuple[str, str, str], Divergence
        ] = {}  # what differs where it was last recorded
        self.unmatched: Divergence | None = None

    def saw(self, label: str, block: Block) -> None:
        self.marks.saw(label, block)
        if self.apart:
            for row in block.rows:
                self.apart.pop((label, block.kind, row[0]), None)

    def differs(self, label: str, item: Divergence) -> None:
        self.marks.differs(label, item)
        self.by_step[item.step] = self.by_step.get(item.step, 0) + 1
        self.apart[label, item.kind, item.name] = item
        if item.detail and self.unmatched is None:
            self.unmatched = item

    def by_kind(self) -> dict[str, Tally]:
        """How many distinct quantities of each kind there are, and how many differ."""
        different = self.marks.differing.keys()
        names = set(different)
        for (label, kind, _), (rows, _) in self.marks.tables.items():
            names.update((label, kind, row[0]) for row in rows)
        counts = Counter(kind for _, kind, _ in names)
        differing = Counter(kind for _, kind, _ in different)
        return {kind: Tally(count, differing[kind]) for kind, count in counts.items()}


def _compare_process(
    label: str, a: Trace, b: Trace, tally: _Tally
) -> list[tuple[float, Divergence]]:
    """The first difference of each of the two kinds (a differing row; a block without its
    counterpart), counting all on the way.

    Steps that one process took and the other did not are no differences of tensors:
    `unequal_length` tells of them.
    """
    # one was ended before it could say in which state
    if (a.stopped or b.stopped) and None in (
        a.end,
        b.end,
    ):
        a, b = (
            replace(
                trace, blocks=[block for block in trace.blocks if block.step < len(trace.steps)]
            )
            for trace in (a, b)
        )
    common, unequal = min(len(a.steps), len(b.steps)), len(a.steps) != len(b.steps)
    counterparts = (
        {key_of(block) for block in a.blocks} & {key_of(block) for block in b.blocks}
        if unequal
        else set()
    )

    def counts(block: Block) -> bool:
        if not unequal or block.step < common:
            return True
        return (
            block.step == common and block.kind in WITHIN_A_STEP and key_of(block) in counterparts
        )

    rest = {key_of(block): block for block in b.blocks if counts(block)}
    found: list[tuple[float, Divergence]] = []
    for place, block in enumerate(a.blocks):
        if not counts(block):
            continue
        counterpart = rest.pop(key_of(block), None)
        tally.saw(label, block)
        if counterpart is None:
            differences = [_divergence(label, block, row, detail=ONLY_FIRST) for row in block.rows]
        else:
            differences = list(_differences(label, block, counterpart))
        for item in differences:
            tally.differs(label, item)
            if not found:
                found.append((place, item))
            elif _read_before(item, found[0][1]):
                found[0] = (found[0][0], item)
    extra: list[tuple[float, Divergence]] = []
    for place, block in enumerate(b.blocks):
        for row in block.rows if key_of(block) in rest else ():
            item = _divergence(label, block, row, detail=ONLY_SECOND)
            tally.differs(label, item)
            # before the block that the first run has in its place
            extra = extra or [(place - 0.5, item)]
    return found + extra


def _read_before(item: Divergence, first: Divergence) -> bool:
    """Whether an optimizer's step read `item` before it wrote `first`: a learning rate is recorded
    after the parameters that it changed."""
    number = (
        item.kind == "optimizer"
        and item.values is not None
        and item.name.startswith("param_groups.")
    )
    return number and first.kind == "parameter" and not first.detail and item.step == first.step


def unequal_length(first: int, second: int, label: str = "main") -> Divergence:
    detail = f"{first} optimizer steps in the first run, {second} in the second"
    return Divergence(
        step=min(first, second), kind="optimizer", name=STEPS, process=label, detail=detail
    )


def _differences(label: str, a: Block, b: Block) -> Iterator[Divergence]:
    first, second = a.digests, b.digests
    if first == second and a.rows == b.rows:  # nearly always: without a look at each row
        return
    counterparts: dict[str, deque[int]] = {}
    for index, row in enumerate(b.rows):
        counterparts.setdefault(row[0], deque()).append(index)
    for index, row in enumerate(a.rows):
        places = counterparts.get(row[0])
        at = places.popleft() if places else None
        if at is None:
            yield _divergence(label, a, row, detail=ONLY_FIRST)
            continue
        values = None
        if index < len(a.values) and at < len(b.values):
            values = _number(a.values[index], row[1]), _number(b.values[at], b.rows[at][1])
        if b.rows[at][1:] != row[1:]:
            detail = (
                f"{row[1]} {list(row[2])} in the first run, {b.rows[at][1]} {list(b.rows[at][2])} "
                "in the second"
            )
            yield _divergence(label, a, row, values=values, detail=detail)
        elif _digest(first, index) != _digest(second, at):
            yield _divergence(label, a, row, values=values)
    for at in (at for places in counterparts.values() for at in places):
        yield _divergence(label, b, b.rows[at], detail=ONLY_SECOND)


def _number(text: str, dtype: str) -> Value:
    """Return the number that a trace holds as a hex float, as the bool or int that it was. What a
    trace says of its dtype is untrusted."""
    number = float.fromhex(text)
    if dtype == "bool":
        return bool(number)
    return int(number) if dtype == "int" and math.isfinite(number) else number


def _divergence(
    label: str,
    block: Block,
    row: Row,
    *,
    values: tuple[Value, Value] | None = None,
    detail: str = "",
) -> Divergence:
    return Divergence(
        step=block.step,
        kind=block.kind,
        name=row[0],
        process=label,
        dtype=row[1],
        shape=row[2],
        values=values,
        detail=detail,
    )


def _digest(digests: bytes, index: int) -> bytes:
    return digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]
