"""Phrases on the operators that were measured: what came of each call with and without the flags,
and which of them make the cost. As in `wording`, every renderer shares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from repro_gate.compare.operators import (
    OperatorArm,
    OperatorCall,
    Operators,
    Share,
    filling,
    shares,
)
from repro_gate.escape import and_more, clip, counted
from repro_gate.report import comparisons, numbers
from repro_gate.report.wording import Phrase, joined, phrase, say
from repro_gate.runs.flags import ALGORITHMS, CUDNN, FILL, SWITCHED
from repro_gate.trace.fields import Location
from repro_gate.trace.format import MAX_CALLS

# titles and cells of a table
Rows = tuple[tuple[str, ...], tuple[tuple[Phrase, ...], ...]]
_OF_TRAINING = ("operator", "lines", "calls", "without flags", "with", "costs")
_KNOWN = ("operator", "form", "without flags", "with", "time with / without")
_NAMED = 3  # shares that the sentence names
_LEAST = 0.05  # points: smaller shares are shown as none
_FILLING = "filling new memory"
_percent = partial(numbers.percent, signed=False)


def arm(result: OperatorArm) -> str:
    """Return what came of a call: `differs in 7 of 20`."""
    if result.outcome == "differs":
        far = f", up to {numbers.ulps(result.max_ulp)}" if result.max_ulp else ""
        return f"differs in {numbers.of(result.differing, result.runs)}{far}"
    if result.outcome == "repeats":
        return f"repeats in {result.runs:,}"
    if result.outcome == "not measured":
        return f"not measured: {result.message}"
    return result.outcome


def sentence(measured: Operators) -> Phrase:
    """Return the cost, and which operators make it up: `4.7 % slower with the flags: 3.1 …`. What
    their sum misses is named."""
    if not measured.step_ms:
        return ()
    largest = _largest(measured)
    parts = [
        phrase(f"{_percent(points)} {{}}", name)
        for points, name in largest[:_NAMED]
        if abs(points) >= _LEAST
    ]
    if measured.cost_pct is None:
        parts = parts or [say("no operator takes clearly longer or shorter")]
        return phrase(
            "the cost was not measured; in percent of a step: {}", joined(parts)
        )
    rest = measured.cost_pct - sum(points for points, _ in largest)
    others = sum(points for points, _ in largest[len(parts) :])
    if abs(others) >= _LEAST:
        parts.append(say(f"{_percent(others)} other operators"))
    parts.append(say(f"{_percent(rest)} not attributed"))
    figure = comparisons.slower(measured.cost_pct)
    return phrase("{figure} with the flags: {}", joined(parts), figure=figure)


def main_cost(measured: Operators | None) -> Phrase:
    """Return what makes at least half of the cost, and the flag that saves it with what that gives
    up; empty if nothing does."""
    if measured is None or not measured.cost_pct or measured.cost_pct < _LEAST:
        return ()
    points, name = _largest(measured)[0]
    if points < measured.cost_pct / 2:
        return ()
    filled = name == say(_FILLING)
    flag = FILL if filled else ALGORITHMS
    on_gpu = measured.platform.get("device", "").startswith("cuda")
    if on_gpu and not filled and "convolution" in shares(measured)[0].operator:
        flag = CUDNN
    saves = "saves" if filled else "may save"  # only the filling was timed alone
    return phrase(
        f"{{figure}} of it {{}}: `determinism.allow: [{{{{flag: {flag}, reason: …}}}}]` {saves} it "
        f"and gives up {SWITCHED[flag]}",
        name,
        figure=f"{points:.1f} points",
    )


def _largest(measured: Operators) -> list[tuple[float, Phrase]]:
    """Return each share of the cost, the largest first, with the name of what costs it."""
    every = [(row.points or 0.0, _label(row)) for row in shares(measured)]
    every.append((filling(measured) or 0.0, say(_FILLING)))
    return sorted(every, key=lambda item: -abs(item[0]))


def _label(row: Share) -> Phrase:
    name = say(short(row.operator), "name")
    return phrase("{} ({})", name, _lines(row.lines[:1])) if row.lines else name


def short(operator: str) -> str:
    """Return `index_put_` for `aten.index_put_.default`; another library's name stays."""
    return operator.removeprefix("aten.").removesuffix(".default")


def _lines(lines: Sequence[Location]) -> Phrase:
    first = say(str(lines[0]), "name") if lines else ()
    left = f" and {len(lines) - 1:,} more" if len(lines) > 1 else ""
    return (*first, *say(left))


def table(measured: Operators, rows: int) -> Rows:
    """Return the table of a training's operators by their share of the cost, or of known calls:
    those that cost something, differ, raise or were not measured."""
    if not measured.step_ms:
        return _KNOWN, tuple(_known(measured.calls))[:rows]
    cost = _percent(measured.cost_pct) if measured.cost_pct is not None else "a step"
    cells = []
    for row in [*filter(_tells, shares(measured))][:rows]:
        points = row.points or 0.0
        options = f" ({row.options})" if row.options else ""
        cells.append(
            (
                say(short(row.operator) + options, "name"),
                _lines(row.lines),
                say(f"{row.calls:,}"),
                say(arm(row.off), "message"),
                say(arm(row.on), "message"),
                say(f"{points:.1f} of {cost}" if abs(points) >= _LEAST else ""),
            )
        )
    return _OF_TRAINING, tuple(cells)


def _tells(row: Share) -> bool:
    """Return whether an operator costs something, or does not just repeat."""
    outcomes = {row.off.outcome, row.on.outcome}
    return abs(row.points or 0.0) >= _LEAST or not outcomes <= {"repeats", "new memory"}


def _known(calls: Sequence[OperatorCall]) -> Iterator[tuple[Phrase, ...]]:
    for call in sorted(calls, key=lambda it: it.off.outcome == "not measured"):
        low, times = 0.0, ""
        if call.flags is not None:
            low, high = call.flags.ratio_ci95
            times = f"{call.flags.ratio:.2f} ({low:.2f} to {high:.2f})"
        if {call.off.outcome, call.on.outcome} == {"repeats"} and low < 1.25:
            continue
        yield (
            say(call.operator, "name"),
            say(call.form, "message"),
            say(arm(call.off), "message"),
            say(arm(call.on), "message"),
            say(times),
        )


def extent(measured: Operators) -> Phrase:
    """Return how many calls were measured, how many of them could not be, and how many operators of
    a training the table leaves out."""
    missing = sum(call.off.outcome == "not measured" for call in measured.calls)
    most = ", the most frequent ones" if len(measured.calls) == MAX_CALLS else ""
    left = f", {missing:,} of them not measured" if missing else ""
    calls = counted(len(measured.calls), "distinct call")
    same = sum(not _tells(row) for row in shares(measured)) if measured.step_ms else 0
    others = counted(same, "operator")
    rest = f"; {others} with equal bits and no measurable cost" if same else ""
    return say(f"{calls}{most} in {numbers.duration(measured.seconds)}{left}{rest}")


def changed(
    kinds: Mapping[str, Sequence[OperatorCall]], rows: int
) -> Iterator[tuple[Phrase, ...]]:
    """Yield each kind of change with its calls: as they are now, or as they were if they are
    gone."""
    if not kinds:
        yield (say("no call has another outcome or another price"),)
    for kind, calls in kinds.items():
        lines = [
            phrase(
                "{name} {message}: {message2}",
                name=short(call.operator),
                message=clip(call.form, 100),
                message2=f"{arm(call.off)} without the flags, {arm(call.on)} with them",
            )
            for call in calls[:rows]
        ]
        left = and_more(len(calls) - rows, "call")
        yield (say(f"{len(calls):,} {kind}"), *lines, *([say(left)] if left else []))
