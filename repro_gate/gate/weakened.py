"""Lists the checks that a change weakens compared with its base, in `repro.yml` by one table and in
`repro.baseline.yml`. Pure.

Stricter values are not listed, nor are values of equal strictness (another seed, a newer image
digest). Any change is listed of the command, its environment, the declared data, the lockfile and
the GPUs: `python train.py` -> `true` is the simplest cheat.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from operator import attrgetter, ne
from typing import Any

from repro_gate.baseline.model import FILE_NAME, PARTS, Baseline, Entry
from repro_gate.escape import and_more
from repro_gate.report.model import WeakenedCheck
from repro_gate.spec.errors import KeyPath, few, shortened
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location

_MOST = 20  # names listed for one key, so that a flood of them hides no other key
_PARTS = 5  # parts of a recorded result in a sentence


def _exceeds(one: Any, other: Any) -> bool:
    """Return whether one limit is above the other; None is above all."""
    return other is not None and (one is None or one > other)


_RULES: Mapping[str, Callable[[Any, Any], bool]] = {
    "changed": ne,
    # a requirement was dropped or changed
    "another": lambda before, after: before is not None and before != after,
    # a limit is higher, as of 5 % where there were 3; None is no limit
    "more": lambda before, after: _exceeds(after, before),
    # less is required, as of 10 steps where there were 50; None requires all
    "less": _exceeds,
    # an exception is new, or wider than it was
    "granted": lambda before, after: (
        after is not None and (before is None or after > before)
    ),
}
# key of the spec, rule, sentence: first who judges and how strictly, then what is run and recorded.
# A rule is one of _RULES, or the values from lenient to strict; None is a key that is not set. `{}`
# is the name of an item below the key.
_TABLE = """
baseline.on-change | notice < fail | results that differ from the baseline no longer fail
policy | head < base | a change would be judged by its own spec
checklist.profile | basic < strict | a missing thing only warns and no longer fails
checklist.waive | granted | {} is waived, or waived for longer
checklist.severity | warn < None < fail | {} has a lower severity
determinism.allow | granted | the flag {} is now off
determinism.allow-nonfinite | True < False | losses need no longer be finite
determinism.repeat | less | fewer deterministic runs are compared
determinism.compare | granted | the tolerance for {} was raised
robustness.vary | another | the second run is no longer varied in {}
robustness.on-dependence | warn < None < fail | a result that depends on the shell may pass
train.run | changed | the training command changed
train.snippet | changed | the training code changed
train.working-directory | changed | training starts in another folder
train.steps | less | fewer optimizer steps are run and compared
train.env | changed | the training's environment changed in {}
random-state.seeds | less | fewer seeds are declared
capture.every | more | fewer steps are compared
capture.artifacts | another | not every file of {} is compared any more
resume | another | the test of resuming changed in {}
equivalent | another | the way {} is compared differently, or no longer
effect | another | the effect of a change is judged otherwise in {}
baseline.pass | within-seed-noise < rounding < none | larger changes of the results pass
cost.measure | False < True | the cost of determinism is no longer measured
cost.max-percent | more | the limit for the cost was raised
cost.max-regression-percent | more | the limit for a regression was raised
env.lockfile | another | this lockfile is no longer required
env.image | None < by tag < by digest | the image is no longer required
hardware.device | None < cpu < cuda | this device is no longer required
hardware.gpus | another | this number of GPUs is no longer required
hardware.gpu-model | another | this GPU model is no longer required
data | another | the bytes of {} are no longer verified
"""
_ROWS = [line.split(" | ") for line in _TABLE.strip().splitlines()]


def _is_weaker(rule: str, before: Any, after: Any) -> bool:
    """Return whether a value is weaker than it was, by a rule of the table."""
    if rule in _RULES:
        return _RULES[rule](before, after)
    order = rule.split(" < ")
    return order.index(str(after)) < order.index(str(before))


def weakened(
    base: Spec,
    head: Spec,
    old_baseline: Baseline,
    new_baseline: Baseline,
    line_of: Callable[[KeyPath], Location | None],
) -> tuple[WeakenedCheck, ...]:
    """Return every check that `head` weakens compared with `base`: the baseline, then the spec in
    the table's order.

    `line_of` returns the line of a key in the change's spec, None if it is unknown.
    """
    found = list(_baseline(old_baseline, new_baseline))
    old = _demands(base)
    new = _demands(head)
    for key, rule, sentence in _ROWS:
        path = tuple(key.split("."))
        before = old[key]
        after = new[key]
        names = [
            name
            for name in {**before, **after}
            if _is_weaker(rule, before.get(name), after.get(name))
        ]
        for name in names[:_MOST]:
            message = sentence.format(_text(name))
            change = _change(before.get(name), after.get(name))
            found.append(
                WeakenedCheck(key, f"{message}: {change}", line_of((*path, name)))
            )
        if left := and_more(len(names) - _MOST):
            found.append(WeakenedCheck(key, left, line_of(path)))
    return tuple(found)


def _demands(spec: Spec) -> dict[str, Mapping[str, object]]:
    """Return what a spec requires under each key of the table, by item name; the name is '' if the
    key has no items."""
    tolerance = spec.determinism.tolerance
    image = spec.env.image
    # Reversed, so that the first waiver of a check counts.
    waived = {item.check: item.until for item in reversed(spec.checklist.waive)}
    demands: dict[str, Mapping[str, object]] = {
        # As text, since "for ever" sorts after every date.
        "checklist.waive": {
            check: str(until or "for ever") for check, until in waived.items()
        },
        "checklist.severity": spec.checklist.severity,
        "determinism.allow": {item.flag: "off" for item in spec.determinism.allow},
        "determinism.compare": vars(tolerance) if tolerance else {},
        "robustness.vary": dict.fromkeys(spec.robustness.vary, "varied"),
        "train.env": spec.train.env,
        "random-state.seeds": {"": len(spec.random_state.seeds)},
        "resume": asdict(spec.resume) if spec.resume else {},
        "baseline.pass": {"": spec.baseline.largest},
        "effect": asdict(spec.effect) if spec.effect else {},
        "equivalent": {it.name: f"{it.compare}: {it.run}" for it in spec.equivalent},
        "capture.artifacts": dict.fromkeys(spec.capture.artifacts, "compared"),
        "env.image": {"": image and ("by digest" if "@" in image else "by tag")},
        # Only the strongest digest counts: with it, a weaker one may be dropped.
        "data": {item.path: item.sha256 or item.md5 for item in spec.data},
    }
    return demands | {
        key: {"": attrgetter(key.replace("-", "_"))(spec)}
        for key, _, _ in _ROWS
        if key not in demands
    }


def _baseline(base: Baseline, head: Baseline) -> Iterator[WeakenedCheck]:
    """Yield each platform's entry that was removed, or whose results changed."""
    for platform, old in sorted(base.items()):
        new = head.get(platform)
        lost = _results(old) - (_results(new) if new else set())
        if new is None:
            how = "removed"
        elif old.config_hash == new.config_hash:
            how = "rewritten: the same config hash has different results"
        else:
            how = "renewed: inputs changed, and so did the recorded results"
        if lost:
            parts = few([part for part, _ in sorted(lost)], _PARTS)
            message = f"the entry of platform {platform[:19]} is {how}: {parts}"
            yield WeakenedCheck(FILE_NAME, message, Location(FILE_NAME))


def _results(entry: Entry) -> set[tuple[str, str]]:
    """Return the recorded results of an entry as (name, digest)."""
    return {
        (f"{part} of seed {item.seed}", str(bits))
        for item in entry.outcomes
        for part, bits in (
            *((name, getattr(item, name)) for name in PARTS),
            *item.artifacts.items(),
        )
        if bits is not None
    }


def _change(before: object, after: object) -> str:
    """Return `before -> after`, both cut to begin shortly before the first difference."""
    values = ["none" if value is None else str(value) for value in (before, after)]
    cut = max(len(os.path.commonprefix(values)) - 20, 0)  # noqa: RUF071 - they are no paths
    return " -> ".join(_text(f"…{value[cut:]}" if cut else value) for value in values)


def _text(value: str) -> str:
    """Return text of the spec for use in a sentence: on one line, in back quotes, shortened."""
    return f"`{shortened(value)}`"
