"""Compares two runs bit for bit: where they first diverge in order of execution, how many tensors
differ, and how far.

Processes of two runs are paired by their key, blocks of two traces by (step, kind, at), rows of two
blocks by name. `compare_runs` is the whole story; what it calls comes below it in that order. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from repro_gate.compare.distances import (
    Key,
    growth,
    key_of,
    loss_gaps,
    losses_of,
    weights,
    with_distance,
)
from repro_gate.compare.heat_map import Marks, coloured, heat_map
from repro_gate.compare.model import KINDS, STEPS, Comparison, Divergence, Tally, Value
from repro_gate.errors import Inconclusive
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.format import DIGEST_BYTES, DIGESTS
from repro_gate.trace.model import Trace

# recorded before the optimizer's step; the rest may be the state at the end
WITHIN_A_STEP = ("rng", "batch", "loss", "gradient")
ONLY_FIRST, ONLY_SECOND = (
    "recorded in the first run only",
    "recorded in the second run only",
)

Found = tuple[
    int, float, Divergence
]  # step, place in the process's order, what differs


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
    _require_one_digest(first, second)
    steps = max(
        (len(trace.steps) for trace in [*first.values(), *second.values()]), default=0
    )
    marks = Marks(steps)
    found = _divergences(first, second, marks)
    found += [(steps, place, item) for place, item in enumerate(artifacts)]
    earliest = min(found, key=lambda item: item[:2])[2] if found else None
    measured = _measured(second)
    by_kind = marks.by_kind()
    if artifact_leaves or artifacts:
        names = {item.name for item in artifacts}
        by_kind["artifact"] = Tally(max(artifact_leaves, len(names)), len(names))
    tensors = [
        figures for kind, figures in by_kind.items() if kind not in ("rng", "loss")
    ]
    return Comparison(
        identical=not found,
        steps=steps,
        tensors=sum(item.tensors for item in tensors),
        differing=sum(item.differing for item in tensors),
        first_divergence=None
        if earliest is None
        else with_distance(earliest, measured),
        by_kind={kind: by_kind[kind] for kind in KINDS if kind in by_kind},
        by_step=tuple(sorted(marks.by_step.items())),
        # what comes after the last step is no step
        differing_steps=sum(0 <= step < steps for step in marks.by_step),
        losses=_losses(first, second),
        weights=weights(second),
        loss_gaps=loss_gaps(first, second),
        unmatched=marks.unmatched,
        unmeasured=sum(
            (label, len(second[label].steps), "parameter", name) not in measured
            for label, name in marks.apart
        ),
        heat_map=coloured(heat_map(marks), second),
    )


def with_replay(comparison: Comparison, second: Sequence[Trace]) -> Comparison:
    """Return the comparison with what was measured when the same training was run twice again,
    `second` beside the first."""
    again = processes(second)
    first, drawn = comparison.first_divergence, comparison.heat_map
    return replace(
        comparison,
        first_divergence=None
        if first is None
        else with_distance(first, _measured(again)),
        heat_map=None if drawn is None else coloured(drawn, again),
        growth=growth(again),
    )


def processes(traces: Sequence[Trace]) -> dict[str, Trace]:
    """Return the processes of a run that recorded something, by label: their key, numbered by
    command line and start where several share one."""
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


def alone(traces: Sequence[Trace]) -> dict[str, Trace]:
    """Return the processes that trained and whose key is theirs alone."""
    trained = [trace for trace in traces if trace.trained]
    counts = Counter(trace.key for trace in trained)
    return {trace.key: trace for trace in trained if counts[trace.key] == 1}


def measured_alike(
    first: Mapping[str, Trace], second: Mapping[str, Trace]
) -> dict[str, Trace]:
    """Return the second run's processes, without the distances of those that took more or fewer
    steps than their counterparts: a probe measures what its run ends with, which is then the state
    of another step."""
    found = dict(second)
    for label, trace in second.items():
        if label not in first or len(first[label].steps) != len(trace.steps):
            found[label] = replace(trace, distances=[])
    return found


def _require_one_digest(
    first: Mapping[str, Trace], second: Mapping[str, Trace]
) -> None:
    """Raise Inconclusive where a process digested tensors in one way in the first run and in
    another in the second."""
    for label in first.keys() & second.keys():
        pair = first[label], second[label]
        if pair[0].facts.get("digest") != pair[1].facts.get("digest"):
            raise other_digest("a process", *(named_digest([trace]) for trace in pair))


def named_digest(traces: Iterable[Trace]) -> str:
    """Return what digested the tensors of these processes: a name of DIGESTS, several joined by
    `+`, or empty. What a trace says is untrusted."""
    found = {trace.facts.get("digest", "") for trace in traces}
    return "+".join(
        sorted(name if name in DIGESTS else "unknown" for name in found if name)
    )


def other_digest(what: str, first: str, second: str) -> Inconclusive:
    """Return the error for what was digested by two algorithms, which tells nothing about bits."""
    known = {*DIGESTS, "unknown"}  # a report may say anything
    first, second = (
        name if known.issuperset(name.split("+")) else "an unnamed digest"
        for name in (first, second)
    )
    return Inconclusive(
        f"{what}: tensors were digested by {first} in the first run and by {second} in the second",
        remedy="use one Python version, and install the `xxhash` package beside torch where the "
        "gate's own does not fit",
        reason_id="determinism/other-digest",
    )


def _divergences(
    first: Mapping[str, Trace], second: Mapping[str, Trace], marks: Marks
) -> list[Found]:
    """Return the first differences of each process."""
    found: list[Found] = []
    for label in dict.fromkeys([*first, *second]):
        if label in first and label in second:
            found += _compare_process(label, first[label], second[label], marks)
            continue
        detail = ONLY_FIRST if label in first else ONLY_SECOND
        missing = Divergence(
            step=-1,
            kind="parameter",
            name=f"process {label}",
            process=label,
            detail=detail,
        )
        found.append((-1, -1, missing))
        marks.unmatched = marks.unmatched or missing
    if marks.only_generators and all(item.kind == "rng" for _, _, item in found):
        # no recorded number depends on their states
        found, marks.unmatched, marks.by_step = [], None, {}
    # more steps in one run: after whatever differs in the steps that both took
    for label in first.keys() & second.keys():
        counts = len(first[label].steps), len(second[label].steps)
        if counts[0] != counts[1]:
            longer = unequal_length(*counts, label)
            found.append((min(counts), math.inf, longer))
            marks.unmatched = marks.unmatched or longer
    return found


def _compare_process(label: str, a: Trace, b: Trace, marks: Marks) -> list[Found]:
    """Return the first difference of each of the two kinds (a differing row; a block that only the
    second run has), counting all on the way."""
    ours, theirs = _comparable(a, b)
    counterparts = {key_of(block): block for block in theirs}
    found: list[Found] = []
    for place, block in enumerate(ours):
        marks.saw(label, block)
        for item in _differences(label, block, counterparts.pop(key_of(block), None)):
            marks.differs(label, item)
            if not found:
                found.append((item.step, place, item))
            elif _read_before(item, found[0][2]):
                found[0] = (item.step, found[0][1], item)
    extra: list[Found] = []
    for place, block in enumerate(theirs):
        for row in block.rows if key_of(block) in counterparts else ():
            item = _divergence(label, block, row, detail=ONLY_SECOND)
            marks.differs(label, item)
            # before the block that the first run has in its place
            extra = extra or [(item.step, place - 0.5, item)]
    return found + extra


def _comparable(a: Trace, b: Trace) -> tuple[Sequence[Block], Sequence[Block]]:
    """Return the blocks of two processes that can be compared. Steps that one of them took and the
    other did not are no differences of tensors: `unequal_length` tells of them."""
    ours, theirs = a.blocks, b.blocks
    # one was ended before it could say in which state
    if (a.stopped or b.stopped) and None in (a.end, b.end):
        ours = [block for block in ours if block.step < len(a.steps)]
        theirs = [block for block in theirs if block.step < len(b.steps)]
    if len(a.steps) == len(b.steps):
        return ours, theirs
    common = min(len(a.steps), len(b.steps))
    both = {key_of(block) for block in ours} & {key_of(block) for block in theirs}

    def counts(block: Block) -> bool:
        if block.step < common:
            return True
        within = block.step == common and block.kind in WITHIN_A_STEP
        return within and key_of(block) in both

    return list(filter(counts, ours)), list(filter(counts, theirs))


def unequal_length(first: int, second: int, label: str = "main") -> Divergence:
    """Return the divergence of two processes that took different numbers of steps."""
    detail = f"{first} optimizer steps in the first run, {second} in the second"
    return Divergence(
        step=min(first, second),
        kind="optimizer",
        name=STEPS,
        process=label,
        detail=detail,
    )


def _read_before(item: Divergence, first: Divergence) -> bool:
    """Return whether an optimizer's step read `item` before it wrote `first`: a learning rate is
    recorded after the parameters that it changed."""
    number = (
        item.kind == "optimizer"
        and item.values is not None
        and item.name.startswith("param_groups.")
    )
    return (
        number
        and first.kind == "parameter"
        and not first.detail
        and item.step == first.step
    )


def first_difference(
    label: str, a: Mapping[Key, Block], block: Block
) -> Divergence | None:
    """Return in what a block of the second run, as it arrives, differs from its counterpart. A
    missing one is left to the whole comparison."""
    counterpart = a.get(key_of(block))
    return (
        None
        if counterpart is None
        else next(_differences(label, counterpart, block), None)
    )


def _differences(label: str, a: Block, b: Block | None) -> Iterator[Divergence]:
    """Yield each row in which two blocks differ."""
    if b is None:
        yield from (_divergence(label, a, row, detail=ONLY_FIRST) for row in a.rows)
        return
    first, second = a.digests, b.digests
    if (
        first == second and a.rows == b.rows
    ):  # nearly always: without a look at each row
        return
    counterparts: dict[str, deque[int]] = {}
    for index, row in enumerate(b.rows):
        counterparts.setdefault(row[0], deque()).append(index)
    for index, row in enumerate(a.rows):
        places = counterparts.get(row[0])
        if not places:
            yield _divergence(label, a, row, detail=ONLY_FIRST)
            continue
        at = places.popleft()
        dtype, shape = b.rows[at][1:]
        values = None
        if index < len(a.values) and at < len(b.values):
            values = _number(a.values[index], row[1]), _number(b.values[at], dtype)
        detail = ""
        if b.rows[at][1:] != row[1:]:
            detail = (
                f"{row[1]} {list(row[2])} in the first run, "
                f"{dtype} {list(shape)} in the second"
            )
        if detail or _digest(first, index) != _digest(second, at):
            yield _divergence(label, a, row, values=values, detail=detail)
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


def _measured(second: Mapping[str, Trace]) -> dict[tuple[str, int, str, str], Measured]:
    """Return what the second run's probe measured, by process, step, kind and name."""
    measured: dict[tuple[str, int, str, str], Measured] = {}
    for label, trace in second.items():
        for item in trace.distances:
            measured[label, item.step, item.kind, item.name] = item
            # what is digested after the last step is what was kept
            if item.step == len(trace.steps) - 1:
                measured[label, item.step + 1, item.kind, item.name] = item
    return measured


def _losses(
    first: Mapping[str, Trace], second: Mapping[str, Trace]
) -> tuple[tuple[int, float, float], ...]:
    """Return step and both losses of the first process, where both runs have one."""
    main = next(iter(first), "")
    if main not in second:
        return ()
    ours, theirs = losses_of(first[main]), losses_of(second[main])
    return tuple(
        (step, ours[step], theirs[step]) for step in sorted(ours.keys() & theirs)
    )
