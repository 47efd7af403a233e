"""Compares a gate run with the baseline: it is unchanged, a no-op, changed, drift or of a new
platform."""

from __future__ import annotations

from collections.abc import Sequence

from repro_gate.baseline.config_hash import PLATFORM, ChangedInput, changed_inputs
from repro_gate.baseline.model import (
    FILE_NAME,
    PARTS,
    Baseline,
    BaselineFinding,
    Entry,
    RecordedResult,
)
from repro_gate.compare.change import SIZE_WORDS, Change
from repro_gate.compare.cost import speed_changes
from repro_gate.compare.distances import finite, gap
from repro_gate.escape import for_terminal, listed

# the recorded and the new result of each seed that both sides have
_Pairs = list[tuple[RecordedResult, RecordedResult]]
_NAME = 60  # characters
_FEW = 3  # names in a sentence; the finding holds them all
_RECORD = "If the new result is right, record it with `repro-gate baseline`"
_RECORD_INPUTS = "`repro-gate baseline` records the new inputs with the same results"
_IF_MEANT = (
    "if that is intended, record the new result with `repro-gate baseline` and commit "
    "repro.baseline.yml with the change"
)
_LOOK_OUTSIDE = (
    "something outside the hashed inputs changed: an undeclared data file, a download, a "
    f"rebuilt library, firmware, faulty memory. {_RECORD}"
)
_UNDO = (
    "undo that change and run the gate again; if it was the cause, pin it in the lockfile or the "
    f"image, which are hashed. {_RECORD}"
)
_RECORD_HERE = (
    "run `repro-gate baseline` on this platform, which adds its result to the others, and "
    "commit repro.baseline.yml"
)


def compare_entry(
    baseline: Baseline, now: Entry, change: Change | None = None
) -> BaselineFinding:
    """Compare one gate run with the entry of its platform, in the seeds and artifacts that both
    have. The baseline has one entry at least; `change`: how large the change is, if known."""
    entry = baseline.get(now.platform)
    size = f": {SIZE_WORDS[change.size]}" if change else ""
    if entry is None:
        return _new_platform(baseline, now, size)
    inputs = changed_inputs(entry, now)
    pairs = common(entry, now)
    parts = differing_parts(pairs)
    is_same = entry.config_hash == now.config_hash
    if is_same and not parts:
        seeds = ({result.seed for result in side.outcomes} for side in (entry, now))
        parts = tuple(
            f"seed {seed}" for seed in sorted(set.symmetric_difference(*seeds))
        )
    before, after = entry.outside, now.outside
    facts = tuple(
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in (sorted(before.keys() | after) if parts else ())
        if before.get(name) != after.get(name)
    )
    farthest = loss_gap(pairs)
    message = f"inputs changed ({_few([item.name for item in inputs])})"
    message = "same inputs" if is_same else message
    if parts == ("seeds",):
        message += ", but no common seed, so results cannot be compared"
    elif parts:
        message += f", different results: {_few(parts)}{size}"
        message += f", losses up to {farthest:.2g} apart" if farthest else ""
    else:
        message += ", bitwise identical results"
    if is_same and parts:
        names = _few([fact.partition(": ")[0] for fact in facts])
        message += f"; {names or 'no recorded fact'} changed outside the hashed inputs"
    if is_same:
        drift = ("drift", _UNDO if facts else _LOOK_OUTSIDE)
        status, remedy = drift if parts else ("unchanged", "")
    else:
        status, remedy = ("changed", _IF_MEANT) if parts else ("no-op", _RECORD_INPUTS)
    return BaselineFinding(
        status=status,
        message=message,
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=finite(farthest),
        outside=facts,
        recorded=entry.recorded,
        remedy=remedy,
        speed=speed_changes(now.step_times, entry.step_times),
    )


def common(entry: Entry, now: Entry) -> _Pairs:
    """Return the results of each seed that both sides have."""
    by_seed = {result.seed: result for result in entry.outcomes}
    return [(by_seed[new.seed], new) for new in now.outcomes if new.seed in by_seed]


def differing_parts(pairs: _Pairs) -> tuple[str, ...]:
    """Return the parts that differ in any seed: `steps`, `losses`, `weights`, `optimizer`,
    `artifact out/a.pt`.

    An artifact counts if both sides have it (which ones are captured is not part of the config
    hash). Sides without a common seed differ in all: `seeds`.
    """
    if not pairs:
        return ("seeds",)
    parts = [
        part
        for part in PARTS
        if any(getattr(old, part) != getattr(new, part) for old, new in pairs)
    ]
    artifacts = [
        f"artifact {name}"
        for old, new in pairs
        for name in sorted(old.artifacts.keys() & new.artifacts)
        if old.artifacts[name] != new.artifacts[name]
    ]
    return tuple(dict.fromkeys([*parts, *artifacts]))


def loss_gap(pairs: _Pairs) -> float | None:
    """Return the largest |difference| of two losses of the same seed and step; infinite if only one
    is finite, None if no step is in both."""
    return max(
        (
            gap(float(old.loss_curve[step]), float(new.loss_curve[step]))
            for old, new in pairs
            for step in old.loss_curve.keys() & new.loss_curve.keys()
        ),
        default=None,
    )


def nearest_entry(baseline: Baseline, now: Entry) -> Entry:
    """Return the entry of this platform, else that of the most similar one. The baseline has one
    entry at least."""
    return baseline.get(now.platform) or min(
        baseline.values(),
        key=lambda entry: (
            entry.recipe != now.recipe,
            len(_changed_platform(entry, now)),
            entry.platform,
        ),
    )


def _new_platform(baseline: Baseline, now: Entry, size: str) -> BaselineFinding:
    """Return the finding on a platform without an entry, compared with the most similar platform
    that has one."""
    nearest = nearest_entry(baseline, now)
    other = nearest.recipe != now.recipe
    pairs = common(nearest, now)
    parts = () if other else differing_parts(pairs)
    results = "the same results"
    if parts:
        results = f"different results ({_few(parts)}{size})"
    inputs = _changed_platform(nearest, now)
    changes = [
        f"{item.name} {item.before or 'absent'} -> {item.after or 'absent'}"
        for item in inputs
    ]
    return BaselineFinding(
        status="new-platform",
        message=f"{FILE_NAME} has no entry for this platform; the nearest entry has "
        f"{'a different recipe' if other else results}, and differs in {_few(changes)}",
        remedy=_RECORD_HERE,
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=None if other else finite(loss_gap(pairs)),
        recorded=nearest.recorded,
        unknown_recipe=other,
    )


def _changed_platform(entry: Entry, now: Entry) -> tuple[ChangedInput, ...]:
    return tuple(item for item in changed_inputs(entry, now) if item.root == PLATFORM)


def _few(names: Sequence[str]) -> str:
    """Return the first few names, safe to print, and how many more there are."""
    return listed([for_terminal(name, _NAME) for name in names], _FEW)
