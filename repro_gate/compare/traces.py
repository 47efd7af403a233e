"""Compares two runs bit for bit: where they first diverge in order of execution, how many tensors
differ, and how far.

Processes of two runs are paired by their key, blocks of two traces by (step, kind, at), rows of two
blocks by name. `compare_runs` is the whole story; what it calls comes below it in that order. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from repro_gate.compare.distances import (
    Figures,
    Key,
    Processes,
    Traces,
    growth,
    key_of,
    loss_gaps,
    losses_of,
    measurements,
    weights,
    with_distance,
)
from repro_gate.compare.heat_map import Marks, coloured, heat_map
from repro_gate.compare.model import STEPS, Comparison, Divergence, Tally, Value
from repro_gate.errors import Inconclusive
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.format import DIGEST_BYTES, DIGESTS
from repro_gate.trace.model import Trace

# recorded before the optimizer's step; the rest may be the state at the end
WITHIN_A_STEP = ("rng", "batch", "loss", "gradient")
GROUPS = "param_groups."  # how the names of an optimizer's hyperparameters begin
ONLY_FIRST = "recorded in the first run only"
ONLY_SECOND = "recorded in the second run only"

# step, place in the order in which the process recorded, what differs
Difference = tuple[int, float, Divergence]
_Content = tuple[Row, bytes, Value | None]  # a row, its digest and its number


def compare_runs(
    a: Traces, b: Traces, artifacts: Sequence[Divergence] = (), artifact_leaves: int = 0
) -> Comparison:
    """Compare all processes of two runs. `artifacts` are differences of declared artifacts, found
    elsewhere; they come last in execution.

    `b` may carry the distances that its probe measured against `a`; the figures are attached where
    they belong.
    """
    first = processes(a)
    second = with_valid_distances(first, processes(b))
    lengths = [len(trace.steps) for trace in (*first.values(), *second.values())]
    steps = max(lengths, default=0)
    marks = Marks(steps)
    differences = _divergences(first, second, marks)
    differences += [(steps, place, item) for place, item in enumerate(artifacts)]
    earliest = min(differences, key=lambda each: each[:2])[2] if differences else None
    by_kind = marks.by_kind()
    if artifact_leaves or artifacts:
        names = {item.name for item in artifacts}
        by_kind["artifact"] = Tally(max(artifact_leaves, len(names)), len(names))
    tallies = [by_kind[kind] for kind in by_kind.keys() - {"rng", "loss"}]
    main = next(iter(first), "")
    ours, theirs = (
        losses_of(run[main]) if main in run else {} for run in (first, second)
    )
    both = sorted(ours.keys() & theirs)
    measured = _measured(second)
    return Comparison(
        identical=not differences,
        steps=steps,
        tensors=sum(tally.tensors for tally in tallies),
        differing=sum(tally.differing for tally in tallies),
        first_divergence=earliest
        and _on_node(with_distance(earliest, measured), second),
        by_kind=by_kind,
        by_step=tuple(sorted(marks.by_step.items())),
        # without the initial state (-1) and what is recorded after the last step
        differing_steps=sum(0 <= step < steps for step in marks.by_step),
        losses=tuple((step, ours[step], theirs[step]) for step in both),
        weights=weights(second),
        loss_gaps=loss_gaps(first, second),
        unmatched=marks.unmatched,
        unmeasured=sum(
            (label, len(second[label].steps), "parameter", name) not in measured
            for label, name in marks.parameters_at_end
        ),
        heat_map=coloured(heat_map(marks), second),
    )


def _on_node(divergence: Divergence, run: Processes) -> Divergence:
    """Return the divergence with the node of its process, if the run used several nodes."""
    trace = run.get(divergence.process)
    if trace is None or len(hosts(run.values())) < 2:
        return divergence
    return replace(divergence, node=trace.facts.get("host", ""))


def hosts(traces: Iterable[Trace]) -> list[str]:
    """Return the nodes on which processes trained, sorted; an unknown one is empty."""
    return sorted({trace.facts.get("host", "") for trace in traces})


def with_replay(comparison: Comparison, second: Traces) -> Comparison:
    """Return the comparison with what was measured when the same training was run twice again,
    `second` beside the first."""
    again = processes(second)
    first = comparison.first_divergence
    drawn = comparison.heat_map
    return replace(
        comparison,
        first_divergence=first and with_distance(first, _measured(again)),
        heat_map=drawn and coloured(drawn, again),
        growth=growth(again),
    )


def processes(traces: Traces) -> dict[str, Trace]:
    """Return the processes of a run that recorded something, by label: their key, numbered by
    command line and start where several share one."""
    trained = [trace for trace in traces if trace.trained]
    trained.sort(key=lambda item: (len(item.key), item.key, item.argv))
    return by_label(trained)


def by_label(traces: Iterable[Trace]) -> dict[str, Trace]:
    """Return processes by their key, numbered in their order where several share one."""
    labelled: dict[str, Trace] = {}
    numbers: Counter[str] = Counter()
    for trace in traces:
        label = trace.key
        while label in labelled:
            numbers[trace.key] += 1
            label = f"{trace.key}#{numbers[trace.key] + 1}"
        labelled[label] = trace
    return labelled


def with_own_key(traces: Traces) -> dict[str, Trace]:
    """Return the processes that trained and whose key is theirs alone."""
    trained = [trace for trace in traces if trace.trained]
    counts = Counter(trace.key for trace in trained)
    return {trace.key: trace for trace in trained if counts[trace.key] == 1}


def with_valid_distances(first: Processes, second: Processes) -> dict[str, Trace]:
    """Return the second run's processes, without the distances of those that took more or fewer
    steps than their counterparts: a probe measures what its run ends with, which is then the state
    of another step."""
    comparable = dict(second)
    for label, trace in second.items():
        if label not in first or len(first[label].steps) != len(trace.steps):
            comparable[label] = replace(trace, distances=[])
    return comparable


def named_digest(traces: Iterable[Trace]) -> str:
    """Return what digested the tensors of these processes: a name of DIGESTS, several joined by
    `+`, or empty. What a trace says is untrusted."""
    names = {trace.facts.get("digest", "") for trace in traces} - {""}
    return "+".join(sorted(name if name in DIGESTS else "unknown" for name in names))


def other_digest(what: str, first: str, second: str) -> Inconclusive:
    """Return the error for what was digested by two algorithms, which tells nothing about bits."""
    return Inconclusive(
        f"{what}: tensors were digested by {first} in the first run and by {second} in the second",
        remedy="use one Python version, and install the `xxhash` package beside torch where the "
        "gate's own does not fit",
        reason_id="determinism/other-digest",
    )


def _divergences(first: Processes, second: Processes, marks: Marks) -> list[Difference]:
    """Return the first differences of each process, and mark all."""
    differences: list[Difference] = []
    for label in dict.fromkeys([*first, *second]):
        if label in first and label in second:
            differences += _of_process(label, first[label], second[label], marks)
            continue
        missing = Divergence(
            step=-1,
            kind="parameter",
            name=f"process {label}",
            process=label,
            detail=ONLY_FIRST if label in first else ONLY_SECOND,
        )
        differences.append((-1, -1, missing))
        marks.unmatched = marks.unmatched or missing
    kinds = {kind for _, kind, _ in marks.differing}
    only_generators = kinds | {item.kind for _, _, item in differences} == {"rng"}
    if only_generators:  # nothing that is recorded depends on them: no divergence
        differences = []
        marks.unmatched = None
        marks.by_step.clear()
    # more steps in one run: after whatever differs in the steps that both took
    for label in first.keys() & second.keys():
        counts = len(first[label].steps), len(second[label].steps)
        if counts[0] != counts[1]:
            longer = unequal_length(*counts, label)
            differences.append((min(counts), math.inf, longer))
            marks.unmatched = marks.unmatched or longer
    return differences


def _of_process(label: str, a: Trace, b: Trace, marks: Marks) -> list[Difference]:
    """Return the first row that differs and the first that only the second run has, and mark all.
    Raises Inconclusive if the runs digested tensors in two ways.

    Steps that one run took and the other did not are no differences of tensors: `unequal_length`
    reports them.
    """
    if a.facts.get("digest") != b.facts.get("digest"):
        raise other_digest("a process", named_digest([a]), named_digest([b]))
    ours = a.blocks
    theirs = b.blocks
    # one was ended before it could say in which state
    is_cut_off = (a.stopped or b.stopped) and None in (a.end, b.end)
    if is_cut_off or len(a.steps) != len(b.steps):
        ours, theirs = blocks_of_common_steps(a, b)
    unpaired = {key_of(block): block for block in theirs}
    differing: list[Difference] = []
    for place, block in enumerate(ours):
        marks.saw(label, block)
        twin = unpaired.pop(key_of(block), None) or _emptied(block)
        for item in _differences(label, block, twin):
            marks.differs(item)
            if not differing:
                differing = [(item.step, place, item)]
            elif _read_before(item, differing[0][2]):
                differing = [(item.step, differing[0][1], item)]
    extra: list[Difference] = []
    for place, block in enumerate(theirs):
        if key_of(block) in unpaired:
            for item in _differences(label, _emptied(block), block):
                marks.differs(item)
                # before the block that the first run has in its place
                extra = extra or [(item.step, place - 0.5, item)]
    return differing + extra


def _emptied(block: Block) -> Block:
    """Return what stands for the counterpart of a block that one run lacks."""
    return replace(block, rows=(), content=b"")


def blocks_of_common_steps(a: Trace, b: Trace) -> tuple[list[Block], list[Block]]:
    """Return the blocks of the steps that both processes took; of the step after them, what both
    had recorded before its optimizer's step."""
    common = min(len(a.steps), len(b.steps))
    keys = {key_of(block) for block in a.blocks} & {key_of(block) for block in b.blocks}

    def counts(block: Block) -> bool:
        if block.step < common:
            return True
        within = block.step == common and block.kind in WITHIN_A_STEP
        return within and key_of(block) in keys

    return list(filter(counts, a.blocks)), list(filter(counts, b.blocks))


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
    """Return whether `item` is a hyperparameter and `first` a parameter that the same step wrote. A
    hyperparameter is recorded later and was read first, so it is the earlier divergence."""
    is_rate = item.values is not None and item.name.startswith(GROUPS)
    moved = first.kind == "parameter" and not first.detail and item.step == first.step
    return item.kind == "optimizer" and is_rate and moved


def first_difference(
    label: str, a: Mapping[Key, Block], block: Block
) -> Divergence | None:
    """Return in what a block of the second run, as it arrives, differs from its counterpart. A
    missing one is left to the whole comparison."""
    twin = a.get(key_of(block))
    return next(_differences(label, twin, block), None) if twin else None


def _differences(label: str, a: Block, b: Block) -> Iterator[Divergence]:
    """Yield each row in which two blocks differ."""
    if a.digests == b.digests and a.rows == b.rows:
        return  # nearly always: without a look at each row
    unpaired: defaultdict[str, deque[_Content]] = defaultdict(deque)
    for content in _contents(b):
        unpaired[content[0][0]].append(content)
    for row, digest, value in _contents(a):
        if not unpaired[row[0]]:
            yield _divergence(label, a, row, detail=ONLY_FIRST)
            continue
        twin_row, twin_digest, twin_value = unpaired[row[0]].popleft()
        values = None if value is None or twin_value is None else (value, twin_value)
        detail = ""
        if twin_row[1:] != row[1:]:
            ours, theirs = (f"{item[1]} {list(item[2])}" for item in (row, twin_row))
            detail = f"{ours} in the first run, {theirs} in the second"
        if detail or digest != twin_digest:
            yield _divergence(label, a, row, values=values, detail=detail)
    for row, *_ in chain(*unpaired.values()):
        yield _divergence(label, b, row, detail=ONLY_SECOND)


def _contents(block: Block) -> Iterator[_Content]:
    """Yield the rows of a block, each with its digest and its number. A trace holds that as a hex
    float: it is again the bool or int that it was. What a trace says of its dtype is untrusted."""
    digests = block.digests
    for at, row in enumerate(block.rows):
        value: Value | None = None
        if at < len(block.values):
            value = float.fromhex(block.values[at])
            if row[1] == "bool":
                value = bool(value)
            elif row[1] == "int" and math.isfinite(value):
                value = int(value)
        yield row, digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES], value


def _divergence(label: str, block: Block, row: Row, **more: Any) -> Divergence:
    name, dtype, shape = row
    return Divergence(
        step=block.step,
        kind=block.kind,
        name=name,
        process=label,
        dtype=dtype,
        shape=shape,
        **more,
    )


def _measured(second: Processes) -> Figures:
    """Return what the second run's probe measured, by process, step, kind and name."""
    measured: dict[tuple[str, int, str, str], Measured] = {}
    for label, item, at_end in measurements(second):
        measured[label, item.step, item.kind, item.name] = item
        # what is digested after the last step is what the probe measured at its end
        if at_end:
            measured[label, item.step + 1, item.kind, item.name] = item
    return measured
