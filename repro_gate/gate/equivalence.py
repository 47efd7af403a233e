"""Trains once with each command under `equivalent` in the spec and compares it with the first
deterministic run, the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from repro_gate._version import DOCS_URL
from repro_gate.compare.change import ROUNDINGS, Equivalence, change_of, unmatched
from repro_gate.escape import listed
from repro_gate.gate.measuring import explaining, keeping, lost_bits, measuring
from repro_gate.report.model import Reason
from repro_gate.report.wording import place_of, roundings
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, Results
from repro_gate.runs.series import run
from repro_gate.spec.model import Equivalent

KEEPING = "rounding-1"  # the run that keeps the reference's tensors
PERTURBED = "rounding-2"  # the run whose initial weights differ in their last bit
_PAGE = f"({DOCS_URL}/equivalence.md)"
_NAMED = 3  # parameters that a sentence names


@dataclass(frozen=True)
class Equivalences:
    """The result of each way that was compared, and a reason for each that was not."""

    found: tuple[Equivalence, ...] = ()
    unanswered: tuple[Reason, ...] = ()


def equivalences_of(results: Results, watch: Watch) -> Equivalences:
    """Train with each other way of the spec; with none if the training itself is not
    reproducible."""
    reference = results.reference
    if reference is None or not results.spec.equivalent:
        return Equivalences()
    done = dict[str, RunResult]()
    problem = ""
    try:
        while request := next_way(results, reference, done):
            watch.said(request.announcement)
            done[request.name] = run(results.spec, results.folder, request)
    except EARLY_ENDS as error:
        if isinstance(error, KeyboardInterrupt):
            results.interrupt(error)
        problem = str(error) or "it was interrupted"
    judged = [_judged(way, reference, done, problem) for way in results.spec.equivalent]
    return Equivalences(
        found=tuple(item for item in judged if isinstance(item, Equivalence)),
        unanswered=tuple(item for item in judged if isinstance(item, Reason)),
    )


def next_way(
    results: Results, reference: RunResult, done: Mapping[str, RunResult]
) -> RunRequest | None:
    """Return the next run: first two that measure rounding, if the spec compares by rounding, then
    each other way. Pure."""
    ways = results.spec.equivalent
    first = explaining(reference)
    keep = keeping(results.spec, reference)
    kept = done.get(KEEPING)
    measure = measuring(keep, kept.traces if kept else ())
    if any(way.compare == "rounding" for way in ways):
        if kept is None:
            return replace(
                first,
                name=KEEPING,
                probe=keep,
                announcement="equivalent: a run that saves its tensors",
            )
        if kept.good and PERTURBED not in done:
            return replace(
                first,
                name=PERTURBED,
                probe={**measure, "perturb": lost_bits(results.control)},
                announcement="equivalent: a run that shows what rounding alone does",
            )
    for way in ways:
        name = f"equivalent-{way.name}"
        is_rounding = way.compare == "rounding"
        if name in done or (is_rounding and not _rounding(done)):
            continue
        return replace(
            first,
            name=name,
            command=way.run.replace("{seed}", str(reference.arm.seed)),
            probe=measure if is_rounding else {},
            announcement=f"equivalent: {way.name}",
        )
    return None


def _rounding(done: Mapping[str, RunResult]) -> RunResult | None:
    """Return the run that shows what rounding does, if it went well."""
    perturbed = done.get(PERTURBED)
    return perturbed if perturbed is not None and perturbed.good else None


def _judged(
    way: Equivalent, reference: RunResult, done: Mapping[str, RunResult], problem: str
) -> Equivalence | Reason:
    """Return the comparison of another way, or the reason why there is none."""
    result = done.get(f"equivalent-{way.name}")
    is_rounding = way.compare == "rounding"
    perturbed = _rounding(done)
    if is_rounding and perturbed is None:
        result = next((item for item in done.values() if not item.good), None)
    if result is None or not result.good:
        if result is not None:
            problem = ": ".join(
                filter(None, (result.name, result.problem, result.last_words))
            )
        return Reason(
            "equivalent/crashed",
            f"{way.name} could not be trained and compared: {problem}",
            f"run it without the gate: {way.run} {_PAGE}",
        )
    missing = unmatched(reference.traces, result.traces)
    if missing:
        return Reason(
            "equivalent/not-compared",
            f"{way.name} has no parameter with the same name, type and shape as "
            f"{listed(missing, _NAMED)}",
            f"compare ways whose parameters have the same names and shapes {_PAGE}",
        )
    traces = perturbed.traces if perturbed and is_rounding else None
    found = change_of(reference.traces, result.traces, traces)
    if is_rounding and found.worst is None and found.first is None:
        return Reason(
            "equivalent/not-compared",
            f"no tensor of {way.name} was measured",
            f"see the notes for why tensors were not saved {_PAGE}",
        )
    return Equivalence(
        **vars(found),
        name=way.name,
        compare="rounding" if is_rounding else "bitwise",
        equivalent=found.size != "different",
    )


def failures(found: Equivalences) -> Iterator[Reason]:
    """Yield why another way is not the same training."""
    for item in found.found:
        if item.equivalent:
            continue
        parts = [item.detail] if item.detail else []
        if item.first is not None:
            far = item.first.roundings
            count = "" if far is None else f", by {roundings(far)}"
            where = place_of(item.first.place, item.first.step + 1)
            parts.append(f"it differs {where}{count}")
        if item.likely:
            parts.append(item.likely)
        limit = f" (up to {ROUNDINGS:g} times counts as the same)"
        yield Reason(
            "equivalent/differs",
            f"{item.name} is not the same training: {'; '.join(parts)}"
            + (limit if item.first and item.first.roundings is not None else ""),
            f"make {item.name} compute what train.run computes, or take it out of `equivalent` "
            f"{_PAGE}",
        )
