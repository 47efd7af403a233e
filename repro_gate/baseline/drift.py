"""What a gate run means beside what is recorded: unchanged, no-op, changed, drift or new platform; and the entry that records it.
Pure: no files, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from repro_gate.baseline.changes import changed_inputs
from repro_gate.baseline.config_hash import PLATFORM, ChangedInput, ConfigHash, plain
from repro_gate.baseline.model import FILE_NAME, Baseline, BaselineFinding, Entry, Outcome
from repro_gate.escape import listed
from repro_gate.spec.errors import escaped, shortened

_FEW = 3  # names in a sentence; the finding holds them all
_RENEW = "if that is meant, record the new result with `repro-gate baseline` and commit repro.baseline.yml with the change"


def judge(baseline: Baseline, hashed: ConfigHash, outcomes: Sequence[Outcome], outside: Mapping[str, str]) -> BaselineFinding:
    """Compare one gate run with the entry of its platform. Seeds and artifacts count where both sides have them."""
    entry = baseline.entries.get(hashed.platform)
    if entry is None:
        return _new_platform(baseline, hashed, outcomes)
    parts, gap = unlike(entry.outcomes, outcomes), loss_gap(entry.outcomes, outcomes)
    inputs = changed_inputs(_config_hash_of(entry), hashed)
    if entry.config_hash == hashed.config_hash:
        parts = parts or _unpaired_seeds(entry.outcomes, outcomes)
        return _drift(entry, parts, gap, outside) if parts else _unchanged(entry, outcomes, gap)
    why = f"inputs changed ({_named([item.name for item in inputs])})"
    if not parts:
        message = f"{why}, results are bitwise identical to the baseline"
        remedy = "`repro-gate baseline` records the new inputs with the same results"
        return BaselineFinding(
            status="no-op",
            message=message,
            changed_inputs=inputs,
            unlike=(),
            loss_gap=gap,
            outside=(),
            recorded=entry.recorded,
            remedy=remedy,
        )
    bits = f"results differ: {_named(parts)}{_far(gap)}" if parts != ("seeds",) else "no seed is in both, so results cannot be compared"
    message = f"{why}, {bits}"
    return BaselineFinding(
        status="changed",
        message=message,
        changed_inputs=inputs,
        unlike=parts,
        loss_gap=_finite(gap),
        outside=_changed_facts(entry.outside, outside),
        recorded=entry.recorded,
        remedy=_RENEW,
    )


def merge(baseline: Baseline | None, entry: Entry) -> Baseline:
    """The baseline with the entry of this platform replaced or added. Entries of other platforms stay, also where their recipe is an older
    one: the gate says so on those platforms."""
    return Baseline({**({} if baseline is None else baseline.entries), entry.platform: entry})


def entry_of(hashed: ConfigHash, outcomes: Sequence[Outcome], outside: Mapping[str, str], now: str, version: str) -> Entry:
    """What a gate run leaves in the baseline. `now` is UTC, ISO 8601 to the second, `version` this tool's."""
    return Entry(
        config_hash=hashed.config_hash,
        recipe=hashed.recipe,
        platform=hashed.platform,
        recipe_inputs=hashed.recipe_inputs,
        platform_inputs=hashed.platform_inputs,
        outcomes=tuple(_readable(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.seed)),
        outside={str(plain(name)): str(plain(text)) for name, text in sorted(outside.items())},
        recorded=now,
        tool_version=version,
    )


def _readable(outcome: Outcome) -> Outcome:
    """With names of artifacts as they are read back: no text in UTF-8 holds a byte that is none."""
    return replace(outcome, artifacts={str(plain(name)): digest for name, digest in outcome.artifacts.items()})


def unlike(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> tuple[str, ...]:
    """The parts whose bits differ, over all seeds that both sides have: `steps`, `losses`, `weights`, `optimizer`, `artifact out/a.pt`.

    An artifact counts where both sides have it (which ones are captured is not part of the config hash). Sides without a common seed differ
    in all: `seeds`.
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


def _new_platform(baseline: Baseline, hashed: ConfigHash, outcomes: Sequence[Outcome]) -> BaselineFinding:
    remedy = "`repro-gate baseline` on this platform records its result beside the others; commit repro.baseline.yml"
    nothing = f"{FILE_NAME} holds nothing for this platform"
    if not baseline.entries:
        return BaselineFinding(status="new-platform", message=nothing, remedy=remedy)
    same = [entry for entry in baseline.entries.values() if entry.recipe == hashed.recipe]
    nearest = min(same or baseline.entries.values(), key=lambda entry: (len(_changed_platform(entry, hashed)), entry.platform))
    inputs = _changed_platform(nearest, hashed)
    changes = _named([f"{item.name} {item.before or 'absent'} -> {item.after or 'absent'}" for item in inputs])
    if not same:
        message = f"{nothing}, and these inputs for no other platform; the nearest one differs in {changes}"
        return BaselineFinding(
            status="new-platform", message=message, changed_inputs=inputs, recorded=nearest.recorded, remedy=remedy, unknown_recipe=True
        )
    differing = unlike(nearest.outcomes, outcomes)
    bits = f"other results ({_named(differing)})" if differing else "the same results"
    message = f"{nothing}; the nearest platform has the same recipe and {bits}, and differs in {changes}"
    gap = _finite(loss_gap(nearest.outcomes, outcomes))
    return BaselineFinding(
        status="new-platform",
        message=message,
        changed_inputs=inputs,
        unlike=differing,
        loss_gap=gap,
        outside=(),
        recorded=nearest.recorded,
        remedy=remedy,
    )


def _unchanged(entry: Entry, outcomes: Sequence[Outcome], gap: float | None) -> BaselineFinding:
    pairs = _pairs(entry.outcomes, outcomes)
    parts = [name for name in ("losses", "weights", "optimizer") if any(getattr(old, name) for old, _ in pairs)]
    names = {"losses": "final losses", "weights": "weights", "optimizer": "optimizer state"}
    artifacts = len({name for old, new in pairs for name in old.artifacts.keys() & new.artifacts})
    what = [names[part] for part in parts] + ([f"{artifacts} artifact" + ("s" if artifacts > 1 else "")] if artifacts else [])
    return BaselineFinding(
        status="unchanged",
        message=f"same inputs, bitwise identical results: {', '.join(what) or 'steps'}",
        loss_gap=_finite(gap),
        recorded=entry.recorded,
    )


def _drift(entry: Entry, parts: tuple[str, ...], gap: float | None, outside: Mapping[str, str]) -> BaselineFinding:
    facts = _changed_facts(entry.outside, outside)
    known = len(entry.outside.keys() & outside)
    message = f"same inputs, different results: {_named(parts)}{_far(gap)}"
    if facts:
        message += f"; changed outside the hashed inputs: {_named([fact.partition(': ')[0] for fact in facts])}"
        remedy = (
            "undo that change and run the gate again; if it was the cause, pin it in the lockfile or the image, which are hashed. "
            "If the new result is right, record it with `repro-gate baseline`"
        )
    else:
        groups = ", ".join(dict.fromkeys(name.partition("/")[0] for name in sorted(entry.outside.keys() & outside)))
        message += (
            f"; none of the {known} recorded facts outside the hashed inputs changed ({groups})"
            if known
            else "; nothing outside the hashed inputs was recorded"
        )
        remedy = (
            "something outside the hashed inputs changed: an undeclared data file, a download, a rebuilt library, firmware, faulty "
            "memory. If the new result is right, record it with `repro-gate baseline`"
        )
    return BaselineFinding(
        status="drift",
        message=message,
        changed_inputs=(),
        unlike=parts,
        loss_gap=_finite(gap),
        outside=facts,
        recorded=entry.recorded,
        remedy=remedy,
    )


def _pairs(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    by_seed = {outcome.seed: outcome for outcome in recorded}
    return [(by_seed[outcome.seed], outcome) for outcome in now if outcome.seed in by_seed]


def _unpaired_seeds(recorded: Sequence[Outcome], now: Sequence[Outcome]) -> tuple[str, ...]:
    return tuple(f"seed {seed}" for seed in sorted({outcome.seed for outcome in recorded} ^ {outcome.seed for outcome in now}))


def _changed_facts(recorded: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {recorded.get(name, 'absent')} -> {now.get(name, 'absent')}"
        for name in sorted(recorded.keys() | now)
        if recorded.get(name) != now.get(name)
    )


def _changed_platform(entry: Entry, hashed: ConfigHash) -> tuple[ChangedInput, ...]:
    return tuple(item for item in changed_inputs(_config_hash_of(entry), hashed) if item.root == PLATFORM)


def _config_hash_of(entry: Entry) -> ConfigHash:
    return ConfigHash(
        config_hash=entry.config_hash,
        recipe=entry.recipe,
        platform=entry.platform,
        recipe_inputs=entry.recipe_inputs,
        platform_inputs=entry.platform_inputs,
    )


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
    return f", losses up to {gap:.2g} apart" if math.isfinite(gap) else ", and a loss is finite on one side only"


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and math.isfinite(gap) else None
