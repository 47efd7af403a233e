"""What a gating means beside what is recorded: unchanged, no-op, changed, drift or new platform; and the entry that records it.

Called by `locking`. Pure: no files, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from repro_gate.baseline.changes import moved
from repro_gate.baseline.config_hash import PLATFORM, ContentAddress, LeafMove
from repro_gate.baseline.model import FILE_NAME, Entry, LockFile, LockFinding, Outcome
from repro_gate.spec.errors import escaped, shortened

_FEW = 3  # names in a sentence; the finding holds them all
_RENEW = "if that is meant, record the new result with `repro-gate lock` and commit repro.lock with the change"


def judge(lock: LockFile, address: ContentAddress, outcomes: Sequence[Outcome], outside: Mapping[str, str]) -> LockFinding:
    """Hold one gating against the entry of its platform. Seeds and artifacts count where both sides have them."""
    entry = lock.entries.get(address.platform)
    if entry is None:
        return _new_platform(lock, address, outcomes)
    parts, gap = unlike(entry.outcomes, outcomes), loss_gap(entry.outcomes, outcomes)
    leaves = moved(_address_of(entry), address)
    if entry.config_hash == address.config_hash:
        parts = parts or _unpaired_seeds(entry.outcomes, outcomes)
        return _drift(entry, parts, gap, outside) if parts else _unchanged(entry, outcomes, gap)
    why = f"the recipe moved ({_named([item.name for item in leaves])})"
    if not parts:
        message = f"{why}, and the bits are those of {FILE_NAME}: for this training the change does nothing"
        remedy = "`repro-gate lock` records the new recipe with the same bits"
        return LockFinding("no-op", message, leaves, (), gap, (), entry.recorded, remedy)
    bits = (
        f"and so did the bits: {_named(parts)}{_far(gap)}" if parts != ("seeds",) else "and no seed is in both, so no bits can be compared"
    )
    message = f"{why}, {bits}"
    return LockFinding("changed", message, leaves, parts, _finite(gap), _facts_moved(entry.outside, outside), entry.recorded, _RENEW)


def merge(lock: LockFile | None, entry: Entry) -> LockFile:
    """The lock with the entry of this platform replaced or added. Entries of other platforms stay, also where their recipe is an older one:
    the gate says so on those platforms."""
    return LockFile({**({} if lock is None else lock.entries), entry.platform: entry})


def entry_of(address: ContentAddress, outcomes: Sequence[Outcome], outside: Mapping[str, str], now: str, version: str) -> Entry:
    """What a gating leaves in the lock. `now` is UTC, ISO 8601 to the second, `version` this tool's."""
    return Entry(
        config_hash=address.config_hash,
        recipe=address.recipe,
        platform=address.platform,
        recipe_leaves=address.recipe_leaves,
        platform_leaves=address.platform_leaves,
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.seed)),
        outside=dict(sorted(outside.items())),
        recorded=now,
        tool_version=version,
    )


def unlike(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> tuple[str, ...]:
    """The parts whose bits differ, over all seeds that both sides have: `steps`, `losses`, `weights`, `optimizer`, `artifact out/a.pt`.

    An artifact counts where both sides have it (which ones are captured is no part of the address). Sides without a common seed differ in
    all: `seeds`.
    """
    pairs = _pairs(recorded, now)
    if not pairs:
        return ("seeds",)
    found: dict[str, None] = {}
    for part in ("steps", "losses", "weights", "optimizer"):
        if any(getattr(old, part) != getattr(new, part) for old, new in pairs):
            found[part] = None
    for old, new in pairs:
        found |= {
            f"artifact {name}": None for name in sorted(old.artifacts.keys() & new.artifacts) if old.artifacts[name] != new.artifacts[name]
        }
    return tuple(found)


def loss_gap(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> float | None:
    """The largest |difference| of two losses of one seed and step; infinite where one alone is not finite, None where none can be held."""
    gaps = [
        _gap(float.fromhex(old_losses[step]), float.fromhex(loss))
        for old, new in _pairs(recorded, now)
        for old_losses in [dict(old.loss_curve)]
        for step, loss in new.loss_curve
        if step in old_losses
    ]
    return max(gaps, default=None)


def _new_platform(lock: LockFile, address: ContentAddress, outcomes: Sequence[Outcome]) -> LockFinding:
    remedy = "`repro-gate lock` on this platform records its result beside the others; commit repro.lock"
    nothing = f"{FILE_NAME} holds nothing for this platform"
    if not lock.entries:
        return LockFinding("new-platform", nothing, remedy=remedy)
    same = [entry for entry in lock.entries.values() if entry.recipe == address.recipe]
    nearest = min(same or lock.entries.values(), key=lambda entry: (len(_platform_moves(entry, address)), entry.platform))
    leaves = _platform_moves(nearest, address)
    changes = _named([f"{item.name} {item.before or 'absent'} -> {item.after or 'absent'}" for item in leaves])
    if not same:
        message = f"{nothing}, nor this recipe for any other; the nearest one differs in {changes}"
        return LockFinding("new-platform", message, leaves, recorded=nearest.recorded, remedy=remedy, unknown_recipe=True)
    differing = unlike(nearest.outcomes, outcomes)
    bits = f"other bits ({_named(differing)})" if differing else "the same bits"
    message = f"{nothing}; the nearest one has this recipe and {bits}, and differs in {changes}"
    gap = _finite(loss_gap(nearest.outcomes, outcomes))
    return LockFinding("new-platform", message, leaves, differing, gap, (), nearest.recorded, remedy)


def _unchanged(entry: Entry, outcomes: Sequence[Outcome], gap: float | None) -> LockFinding:
    pairs = _pairs(entry.outcomes, outcomes)
    parts = [name for name in ("losses", "weights", "optimizer") if any(getattr(old, name) for old, _ in pairs)]
    names = {"losses": "final losses", "weights": "weights", "optimizer": "optimizer state"}
    artifacts = len({name for old, new in pairs for name in old.artifacts.keys() & new.artifacts})
    what = [names[part] for part in parts] + ([f"{artifacts} artifact" + ("s" if artifacts > 1 else "")] if artifacts else [])
    return LockFinding(
        "unchanged", f"the same address and the same bits: {', '.join(what) or 'steps'}", loss_gap=_finite(gap), recorded=entry.recorded
    )


def _drift(entry: Entry, parts: tuple[str, ...], gap: float | None, outside: Mapping[str, str]) -> LockFinding:
    facts = _facts_moved(entry.outside, outside)
    known = len(entry.outside.keys() & outside)
    message = f"the same address gives other bits than recorded: {_named(parts)}{_far(gap)}"
    if facts:
        message += f"; outside its leaves moved {_named([fact.partition(': ')[0] for fact in facts])}"
        remedy = (
            "put back what moved outside the leaves and gate again; where that was the cause, pin it in the lockfile or the image, which "
            "are leaves. If the new result is right, record it with `repro-gate lock`"
        )
    else:
        groups = ", ".join(dict.fromkeys(name.partition("/")[0] for name in sorted(entry.outside.keys() & outside)))
        message += (
            f"; none of the {known} facts known to lie outside its leaves moved ({groups})"
            if known
            else "; nothing is known of what lies outside"
        )
        remedy = (
            "look for what no leaf names: a file that training reads and `data` does not declare, a download, a library that was built "
            "anew under the same version, firmware, broken memory. If the new result is right, record it with `repro-gate lock`"
        )
    return LockFinding("drift", message, (), parts, _finite(gap), facts, entry.recorded, remedy)


def _pairs(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    by_seed = {outcome.seed: outcome for outcome in recorded}
    return [(by_seed[outcome.seed], outcome) for outcome in now if outcome.seed in by_seed]


def _unpaired_seeds(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> tuple[str, ...]:
    return tuple(f"seed {seed}" for seed in sorted({outcome.seed for outcome in recorded} ^ {outcome.seed for outcome in now}))


def _facts_moved(recorded: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {recorded.get(name, 'absent')} -> {now.get(name, 'absent')}"
        for name in sorted(recorded.keys() | now)
        if recorded.get(name) != now.get(name)
    )


def _platform_moves(entry: Entry, address: ContentAddress) -> tuple[LeafMove, ...]:
    return tuple(item for item in moved(_address_of(entry), address) if item.root == PLATFORM)


def _address_of(entry: Entry) -> ContentAddress:
    return ContentAddress(entry.config_hash, entry.recipe, entry.platform, entry.recipe_leaves, entry.platform_leaves)


def _named(names: Sequence[str]) -> str:
    """The first few, safe to print, and how many more there are."""
    shown = [shortened(escaped(name)) for name in names[:_FEW]]
    return ", ".join(shown) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def _gap(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


def _far(gap: float | None) -> str:
    if not gap:
        return ""
    return f", losses up to {gap:.2g} apart" if math.isfinite(gap) else ", and a loss is finite on one side only"


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and math.isfinite(gap) else None
