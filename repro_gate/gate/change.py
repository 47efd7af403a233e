"""Measures how large a change is by further runs: beside another ref, another environment, or a run
that is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from repro_gate.baseline.model import Entry
from repro_gate.baseline.status import common, differing_parts
from repro_gate.compare import sketch
from repro_gate.compare.change import (
    KINDS,
    UNMEASURED,
    Change,
    ChangedOperator,
    change_of,
)
from repro_gate.compare.model import Apart
from repro_gate.diagnosis.operators import culprit
from repro_gate.gate.diagnose import operators_of
from repro_gate.gate.measuring import explained, keeping, lost_bits, measuring
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results, compare_pair
from repro_gate.trace import notebook

_NO_SKETCHES = (
    "the baseline's entry has no sketches of this training, so nobody knows by how much: "
    "`repro-gate baseline` records them"
)
_ARTIFACTS = "artifacts differ too, by how much was not measured"
_SKETCHING = {"final": True, "steps": (0,), "kinds": KINDS, "sketch": True}


def measured_change(there: Results, here: Results, watch: Watch) -> Change:
    """Return how far the training `here` is from that of `there`, whose first run kept its tensors.
    Two more runs measure it, unless the bits are the same."""
    reference, now = there.pair()[0], here.pair()[0]
    comparison, _ = compare_pair(reference, now, here.reader)
    if comparison.identical:
        return Change(size="none", steps=comparison.steps)
    earliest = comparison.first_divergence
    first = None
    if earliest is not None:
        first = Apart(step=earliest.step, kind=earliest.kind, name=earliest.name)
    beyond = Change(size="different", steps=comparison.steps, first=first)
    probe = measuring(keeping(here.spec, now), reference.traces)
    perturb = {**probe, "perturb": lost_bits(here.control)}
    watch.said("against: what rounding alone does, and how far this change is from it")
    runs = []
    for results, base, more in ((there, reference, perturb), (here, now, probe)):
        name = f"rounding-{base.name}"
        runs.append(explained(results, base, name=name, probe=more))
        if not runs[-1].good:
            why = f"{UNMEASURED}: {runs[-1].name} {runs[-1].problem}"
            return replace(beyond, detail=why)
    found = change_of(reference.traces, runs[1].traces, runs[0].traces)
    if found.size == "rounding" and not (found.worst and found.worst.roundings):
        # what differs is no loss, gradient or parameter
        return replace(beyond, unmatched=found.unmatched)
    tally = comparison.by_kind.get("artifact")
    files = [_ARTIFACTS] if tally and tally.differing else []
    return replace(found, detail="; ".join(filter(None, [found.detail, *files])))


def between_environments(
    change: Change, there: Results, here: Results, watch: Watch
) -> Change:
    """Return the change with the installed distributions that differ, and if any do the first
    operator that gives other bits, which two more runs record."""
    sides = (there, here)
    old, new = map(_distributions, sides)
    moved = tuple(
        f"{name} {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        # those of both sides first, and torch before all
        for name in sorted(
            old.keys() | new,
            key=lambda it: (it != "torch", (it in old) != (it in new), it),
        )
        if old.get(name) != new.get(name)
    )
    change = replace(change, distributions=moved)
    pair = there.pair()[0], here.pair()[0]
    first = compare_pair(*pair, here.reader)[0].first_divergence
    if first is None or not moved:
        return change
    watch.said("environments: two runs that record every operator of the step")
    records = []
    for results, base in zip(sides, pair, strict=True):
        done = explained(
            results,
            base,
            name=f"operators-{base.name}",
            arm=replace(base.arm, steps=max(first.step, 0) + 1),
            probe={"operators": {"step": first.step, "sketch": True}, "every": 1},
        )
        records.append(operators_of(done))
    found = culprit(*records, same_build=False)
    if found is None or found.after:
        return change
    operator = found.operator
    twin = found.twin
    far = None
    if operator.sums and twin.sums and operator.rounding:
        far = sketch.distance(operator.sums, twin.sums) / operator.rounding
    place = notebook.place(*operator.site) if operator.site[0] else ""
    return replace(change, operator=ChangedOperator(operator.op, place, far))


def _distributions(results: Results) -> Mapping[str, str]:
    traces = results.pair()[0].traces
    return next(filter(None, (trace.distributions for trace in traces)), {})


def change_since(old: Entry, now: Entry, results: Results, watch: Watch) -> Change:
    """Return how large the change is since a baseline's entry was recorded. One more run measures
    it, unless the results are the same."""
    both = common(old, now)
    steps = results.pair()[0].steps
    parts = differing_parts(both)
    if not parts:
        return Change(size="none", steps=steps)
    beyond = Change(size="different", steps=steps)
    known = [before for before, _ in both if before.sketches]
    if not known:
        return replace(beyond, detail=_NO_SKETCHES)
    seed = known[0].seed
    name = f"sketch-seed{seed}"
    probe = {"keep": {**_SKETCHING, "reference": {}}}
    watch.said("baseline: a run that measures how far it is from the recorded one")
    done = explained(results, results.pair(seed)[0], name=name, probe=probe)
    if not done.good:
        return replace(beyond, detail=f"{name} {done.problem}")
    found = sketch.change_since(
        known[0].sketches, sketch.sketched(done.traces), done.steps
    )
    if found.worst is not None and not found.worst.roundings:
        return replace(beyond, detail=found.detail)  # what differs was not sketched
    files = [_ARTIFACTS] if any(it.startswith("artifact ") for it in parts) else []
    return replace(found, detail="; ".join(filter(None, [found.detail, *files])))


def sketches_of(results: Results, watch: Watch) -> dict[str, str]:
    """Return the sketches of the first seed's run, as the baseline keeps them. Two more runs make
    them."""
    first = results.pair()[0]
    keep = {"keep": {**_SKETCHING, "steps": (0, max(first.steps - 1, 0))}}
    watch.said(
        "baseline: two runs that sketch the tensors, and what rounding does to them"
    )
    kept = explained(results, first, name="sketch-1", probe=keep)
    probe = {
        **measuring(
            {"keep": {**keep["keep"], "final": False, "sketch": False}}, kept.traces
        ),
        "perturb": lost_bits(results.control),
    }
    perturbed = explained(results, first, name="sketch-2", probe=probe)
    if not (kept.good and perturbed.good):
        return {}
    return sketch.recorded(kept.traces, perturbed.traces, kept.steps)
