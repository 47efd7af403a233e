"""Whether a baseline still stands: a gate run is unchanged, a no-op, changed, drift or of a new
platform compared with what is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ChangedInput, changed
from repro_gate.baseline.model import FILE_NAME, Baseline, BaselineFinding, Entry, RecordedResult
from repro_gate.compare.cost import speed_changes
from repro_gate.escape import listed
from repro_gate.spec.errors import escaped, shortened

_FEW = 3  # names in a sentence; the finding holds them all
_PARTS = ("steps", "losses", "weights", "optimizer")
_RECORD = "If the new result is right, record it with `repro-gate baseline`"
_REMEDIES = {
    "unchanged": "",
    "no-op": "`repro-gate baseline` records the new inputs with the same results",
    "changed": "if that is meant, record the new result with `repro-gate baseline` and commit "
    "repro.baseline.yml with the change",
    "drift": "something outside the hashed inputs changed: an undeclared data file, a download, a "
    f"rebuilt library, firmware, faulty memory. {_RECORD}",
    "new-platform": "`repro-gate baseline` on this platform records its result beside the others; "
    "commit repro.baseline.yml",
}
_UNDO = (
    "undo that change and run the gate again; if it was the cause, pin it in the lockfile or the "
    f"image, which are hashed. {_RECORD}"
)


def compare_entry(baseline: Baseline, now: Entry) -> BaselineFinding:
    """Compare one gate run with the entry of its platform. Seeds and artifacts count if both sides
    have them."""
    entry = baseline.entries.get(now.platform)
    if entry is None:
        return _new_platform(baseline, now)
    parts = unlike(entry.outcomes, now.outcomes)
    gap = loss_gap(entry.outcomes, now.outcomes)
    if entry.config_hash == now.config_hash:
        parts = parts or _unpaired_seeds(entry, now)
        status = "drift" if parts else "unchanged"
    else:
        status = "changed" if parts else "no-op"
    inputs = changed(RECIPE, entry.recipe_inputs, now.recipe_inputs)
    facts = _changed_facts(entry, now) if parts else ()
    why = f"inputs changed ({_few([item.name for item in inputs])})"
    bits = f"{_few(parts)}{_far(gap)}"
    messages = {
        "unchanged": "same inputs, bitwise identical results",
        "no-op": f"{why}, results are bitwise identical to the baseline",
        "changed": f"{why}, results differ: {bits}",
        "drift": f"same inputs, different results: {bits}; {_outside(entry, now, facts)}",
    }
    if parts == ("seeds",):
        messages["changed"] = f"{why}, no seed is in both, so results cannot be compared"
    return BaselineFinding(
        status=status,
        message=messages[status],
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=_finite(gap),
        outside=facts,
        recorded=entry.recorded,
        remedy=_UNDO if status == "drift" and facts else _REMEDIES[status],
        speed=speed_changes(now.step_times, entry.step_times),
    )


def unlike(recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]) -> tuple[str, ...]:
    """Return the parts whose bits differ, over all seeds that both sides have: `steps`, `losses`,
    `weights`, `optimizer`, `artifact out/a.pt`.

    An artifact counts if both sides have it (which ones are captured is not part of the config
    hash). Sides without a common seed differ in all: `seeds`.
    """
    pairs = _pairs(recorded, now)
    if not pairs:
        return ("seeds",)
    parts = [
        part
        for part in _PARTS
        if any(getattr(old, part) != getattr(new, part) for old, new in pairs)
    ]
    artifacts = [
        f"artifact {name}"
        for old, new in pairs
        for name in sorted(old.artifacts.keys() & new.artifacts)
        if old.artifacts[name] != new.artifacts[name]
    ]
    return tuple(dict.fromkeys([*parts, *artifacts]))


def loss_gap(recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]) -> float | None:
    """Return the largest |difference| of two losses of one seed and step; infinite if one alone is
    not finite, None if no step is in both."""
    curves = [(old.loss_curve, new.loss_curve) for old, new in _pairs(recorded, now)]
    gaps = (
        _gap(float(old[step]), float(new[step]))
        for old, new in curves
        for step in old.keys() & new.keys()
    )
    return max(gaps, default=None)


def _new_platform(baseline: Baseline, now: Entry) -> BaselineFinding:
    message = f"{FILE_NAME} holds nothing for this platform"
    remedy = _REMEDIES["new-platform"]
    if not baseline.entries:
        return BaselineFinding(status="new-platform", message=message, remedy=remedy)
    same = [entry for entry in baseline.entries.values() if entry.recipe == now.recipe]
    nearest = min(
        same or baseline.entries.values(),
        key=lambda entry: (len(_changed_platform(entry, now)), entry.platform),
    )
    inputs = _changed_platform(nearest, now)
    changes = _few(
        [f"{item.name} {item.before or 'absent'} -> {item.after or 'absent'}" for item in inputs]
    )
    parts: tuple[str, ...] = ()
    gap = None
    if same:
        parts = unlike(nearest.outcomes, now.outcomes)
        gap = loss_gap(nearest.outcomes, now.outcomes)
        bits = f"other results ({_few(parts)})" if parts else "the same results"
        message += f"; the nearest with this recipe has {bits}, and differs in {changes}"
    else:
        message += f", and no other has this recipe; the nearest one differs in {changes}"
    return BaselineFinding(
        status="new-platform",
        message=message,
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=_finite(gap),
        recorded=nearest.recorded,
        remedy=remedy,
        unknown_recipe=not same,
    )


def _outside(entry: Entry, now: Entry, facts: Sequence[str]) -> str:
    if facts:
        names = _few([fact.partition(": ")[0] for fact in facts])
        return f"changed outside the hashed inputs: {names}"
    if known := entry.outside.keys() & now.outside:
        return f"none of the {len(known)} recorded facts outside the hashed inputs changed"
    return "nothing outside the hashed inputs was recorded"


def _pairs(
    recorded: Sequence[RecordedResult], now: Sequence[RecordedResult]
) -> list[tuple[RecordedResult, RecordedResult]]:
    by_seed = {result.seed: result for result in recorded}
    return [(by_seed[result.seed], result) for result in now if result.seed in by_seed]


def _unpaired_seeds(entry: Entry, now: Entry) -> tuple[str, ...]:
    before, after = ({result.seed for result in side.outcomes} for side in (entry, now))
    return tuple(f"seed {seed}" for seed in sorted(before ^ after))


def _changed_facts(entry: Entry, now: Entry) -> tuple[str, ...]:
    before, after = entry.outside, now.outside
    return tuple(
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in sorted(before.keys() | after)
        if before.get(name) != after.get(name)
    )


def _changed_platform(entry: Entry, now: Entry) -> tuple[ChangedInput, ...]:
    return changed(PLATFORM, entry.platform_inputs, now.platform_inputs)


def _few(names: Sequence[str]) -> str:
    """Return the first few names, safe to print, and how many more there are."""
    return listed([shortened(escaped(name)) for name in names], _FEW)


def _gap(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    gap = abs(a - b)
    return gap if math.isfinite(gap) else math.inf


def _far(gap: float | None) -> str:
    if not gap:
        return ""
    if math.isfinite(gap):
        return f", losses up to {gap:.2g} apart"
    return ", and a loss is finite on one side only"


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and math.isfinite(gap) else None
