"""Whether a baseline still stands: a gate run is unchanged, a no-op, changed, drift or of a new
platform beside what is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ChangedInput, changed
from repro_gate.baseline.model import FILE_NAME, Baseline, BaselineFinding, Entry, RecordedResult
from repro_gate.compare.cost import speed_changes
from repro_gate.escape import listed
from repro_gate.spec.errors import escaped, shortened

_FEW = 3  # names in a sentence; the finding holds them all
_RENEW = (
    "if that is meant, record the new result with `repro-gate baseline` and commit "
    "repro.baseline.yml with the change"
)


def compare_entry(baseline: Baseline, now: Entry) -> BaselineFinding:
    """Compare one gate run with the entry of its platform. Seeds and artifacts count where both
    sides have them."""
    entry = baseline.entries.get(now.platform)
    if entry is None:
        return _new_platform(baseline, now)
    return replace(_compared(entry, now), speed=speed_changes(now.step_times, entry.step_times))


def _compared(entry: Entry, now: Entry) -> BaselineFinding:
    parts, gap = unlike(entry.outcomes, now.outcomes), loss_gap(entry.outcomes, now.outcomes)
    if entry.config_hash == now.config_hash:
        parts = parts or _unpaired_seeds(entry, now)
        if parts:
            return _drift(entry, now, parts, gap)
        message = "same inputs, bitwise identical results"
        return BaselineFinding(
            status="unchanged", message=message, loss_gap=_finite(gap), recorded=entry.recorded
        )
    inputs = (
        *changed(RECIPE, entry.recipe_inputs, now.recipe_inputs),
        *_changed_platform(entry, now),
    )
    why = f"inputs changed ({_named([item.name for item in inputs])})"
    if not parts:
        return BaselineFinding(
            status="no-op",
            message=f"{why}, results are bitwise identical to the baseline",
            changed_inputs=inputs,
            loss_gap=gap,
            recorded=entry.recorded,
            remedy="`repro-gate baseline` records the new inputs with the same results",
        )
    bits = (
        f"results differ: {_named(parts)}{_far(gap)}"
        if parts != ("seeds",)
        else "no seed is in both, so results cannot be compared"
    )
    return BaselineFinding(
        status="changed",
        message=f"{why}, {bits}",
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=_finite(gap),
        outside=_changed_facts(entry, now),
        recorded=entry.recorded,
        remedy=_RENEW,
    )


def unlike(recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]) -> tuple[str, ...]:
    """The parts whose bits differ, over all seeds that both sides have: `steps`, `losses`,
    `weights`, `optimizer`, `artifact out/a.pt`.

    An artifact counts where both sides have it (which ones are captured is not part of the config
    hash). Sides without a common seed differ in all: `seeds`.
    """
    pairs = _pairs(recorded, now)
    if not pairs:
        return ("seeds",)
    found = [
        part
        for part in ("steps", "losses", "weights", "optimizer")
        if any(getattr(old, part) != getattr(new, part) for old, new in pairs)
    ]
    for old, new in pairs:
        shared = sorted(old.artifacts.keys() & new.artifacts)
        found += [
            f"artifact {name}" for name in shared if old.artifacts[name] != new.artifacts[name]
        ]
    return tuple(dict.fromkeys(found))


def loss_gap(recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]) -> float | None:
    """The largest |difference| of two losses of one seed and step; infinite where one alone is not
    finite, None where none can be held."""
    curves = [(old.loss_curve, new.loss_curve) for old, new in _pairs(recorded, now)]
    return max(
        (
            _gap(float(old[step]), float(new[step]))
            for old, new in curves
            for step in old.keys() & new.keys()
        ),
        default=None,
    )


def _new_platform(baseline: Baseline, now: Entry) -> BaselineFinding:
    remedy = (
        "`repro-gate baseline` on this platform records its result beside the others; commit "
        "repro.baseline.yml"
    )
    nothing = f"{FILE_NAME} holds nothing for this platform"
    if not baseline.entries:
        return BaselineFinding(status="new-platform", message=nothing, remedy=remedy)
    same = [entry for entry in baseline.entries.values() if entry.recipe == now.recipe]
    nearest = min(
        same or baseline.entries.values(),
        key=lambda entry: (len(_changed_platform(entry, now)), entry.platform),
    )
    inputs = _changed_platform(nearest, now)
    changes = _named(
        [f"{item.name} {item.before or 'absent'} -> {item.after or 'absent'}" for item in inputs]
    )
    message = f"{nothing}, and no other has this recipe; the nearest one differs in {changes}"
    differing: tuple[str, ...] = ()
    gap = None
    if same:
        differing = unlike(nearest.outcomes, now.outcomes)
        gap = _finite(loss_gap(nearest.outcomes, now.outcomes))
        bits = f"other results ({_named(differing)})" if differing else "the same results"
        message = f"{nothing}; the nearest with this recipe has {bits}, and differs in {changes}"
    return BaselineFinding(
        status="new-platform",
        message=message,
        changed_inputs=inputs,
        unlike=differing,
        loss_gap=gap,
        recorded=nearest.recorded,
        remedy=remedy,
        unknown_recipe=not same,
    )


def _drift(entry: Entry, now: Entry, parts: tuple[str, ...], gap: float | None) -> BaselineFinding:
    facts, known = _changed_facts(entry, now), entry.outside.keys() & now.outside
    outside = "nothing outside the hashed inputs was recorded"
    remedy = (
        "something outside the hashed inputs changed: an undeclared data file, a download, a "
        "rebuilt library, firmware, faulty memory. If the new result is right, record it with "
        "`repro-gate baseline`"
    )
    if facts:
        names = _named([fact.partition(": ")[0] for fact in facts])
        outside = f"changed outside the hashed inputs: {names}"
        remedy = (
            "undo that change and run the gate again; if it was the cause, pin it in the lockfile "
            "or the image, which are hashed. If the new result is right, record it with "
            "`repro-gate baseline`"
        )
    elif known:
        outside = f"none of the {len(known)} recorded facts outside the hashed inputs changed"
    return BaselineFinding(
        status="drift",
        message=f"same inputs, different results: {_named(parts)}{_far(gap)}; {outside}",
        unlike=parts,
        loss_gap=_finite(gap),
        outside=facts,
        recorded=entry.recorded,
        remedy=remedy,
    )


def _pairs(
    recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]
) -> list[tuple[RecordedResult, RecordedResult]]:
    by_seed = {result.seed: result for result in recorded}
    return [(by_seed[result.seed], result) for result in now if result.seed in by_seed]


def _unpaired_seeds(entry: Entry, now: Entry) -> tuple[str, ...]:
    return tuple(
        f"seed {seed}"
        for seed in sorted(
            {item.seed for item in entry.outcomes} ^ {item.seed for item in now.outcomes}
        )
    )


def _changed_facts(entry: Entry, now: Entry) -> tuple[str, ...]:
    before, after = entry.outside, now.outside
    changed_names = (
        name for name in sorted(before.keys() | after) if before.get(name) != after.get(name)
    )
    return tuple(
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in changed_names
    )


def _changed_platform(entry: Entry, now: Entry) -> tuple[ChangedInput, ...]:
    return changed(PLATFORM, entry.platform_inputs, now.platform_inputs)


def _named(names: Sequence[str]) -> str:
    """The first few, safe to print, and how many more there are."""
    return listed([shortened(escaped(name)) for name in names], _FEW)


def _gap(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


def _far(gap: float | None) -> str:
    if not gap:
        return ""
    return (
        f", losses up to {gap:.2g} apart"
        if math.isfinite(gap)
        else ", and a loss is finite on one side only"
    )


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and math.isfinite(gap) else None
