"""Which checks a change weakens compared with its base: in `repro.yml`, and in
`repro.baseline.yml`. Pure.

What asks for more, and what asks for something else of the same weight (another seed, a newer image
digest), is not listed. Three things without a direction are: what is run, its environment, and the
bytes of declared data; `python train.py` -> `true` is the simplest cheat.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import chain

from repro_gate.baseline.model import FILE_NAME, Baseline, Entry
from repro_gate.baseline.status import unlike
from repro_gate.escape import listed
from repro_gate.report.model import WeakenedCheck
from repro_gate.spec.errors import KeyPath, escaped, shortened
from repro_gate.spec.model import DataItem, Spec

LineOf = Callable[[KeyPath], str]
_Found = Iterator[tuple[KeyPath, str]]  # the path of a key in the change's spec, and the sentence

_RANKS = {"warn": 1, "fail": 2}
# changed variables that are listed by themselves; parts of a result, or seeds, in one sentence
_FEW = 5


def weakened(
    base: Spec,
    head: Spec,
    old_baseline: Baseline | None,
    new_baseline: Baseline | None,
    line_of: LineOf = lambda _: "",
) -> tuple[WeakenedCheck, ...]:
    """Every check that `head` weakens compared with `base`: first who judges and how strictly, then
    the baseline, then what is run and recorded.

    `line_of` gives the line of a key of the change's spec (`repro.yml:12`), or an empty text.
    """

    def located(found: _Found) -> Iterator[WeakenedCheck]:
        for path, message in found:
            yield WeakenedCheck(
                ".".join(part for part in path if isinstance(part, str)), message, line_of(path)
            )

    rules = chain.from_iterable(
        section(base, head) for section in (_rules, _waivers, _severities, _determinism)
    )
    rest = chain.from_iterable(section(base, head) for section in (_train, _recorded, _environment))
    return (
        *located(rules),
        *_baseline(old_baseline, new_baseline),
        *located(rest),
        *_data(base, head, line_of),
    )


def _rules(base: Spec, head: Spec) -> _Found:
    if (base.baseline.on_change, head.baseline.on_change) == ("fail", "notice"):
        yield (
            ("baseline", "on-change"),
            "a result that differs from the recorded one no longer fails: fail -> notice",
        )
    if (base.policy, head.policy) == ("base", "head"):
        yield ("policy",), "a change would be judged by its own spec: base -> head"
    if (base.checklist.profile, head.checklist.profile) == ("strict", "basic"):
        yield ("checklist", "profile"), "what is missing warns and no longer fails: strict -> basic"


def _waivers(base: Spec, head: Spec) -> _Found:
    """Of two waivers for one check the first counts, as in `run_checks`."""
    ends = {waiver.check: waiver.until for waiver in reversed(base.checklist.waive)}
    seen = set[str]()
    for number, waiver in enumerate(head.checklist.waive):
        check, until, end = waiver.check, waiver.until, ends.get(waiver.check)
        if check in seen:
            continue
        seen.add(check)
        if check not in ends:
            lasts = "without an end" if until is None else f"until {until}"
            yield (
                ("checklist", "waive", number),
                f"{check} is waived {lasts}: {shortened(escaped(waiver.reason))}",
            )
        elif end is not None and (until is None or until > end):
            yield (
                ("checklist", "waive", number),
                f"the waiver of {check} lasts longer: until {end} -> {until or 'without an end'}",
            )


def _severities(base: Spec, head: Spec) -> _Found:
    old, new = base.checklist.severity, head.checklist.severity
    for check in sorted(old.keys() | new):
        before, after = (_ranks(spec, check) for spec in (base, head))
        if old.get(check) != new.get(check) and any(
            now < was for was, now in zip(before, after, strict=True)
        ):
            said = [severity.get(check, "as its profile says") for severity in (old, new)]
            yield (
                ("checklist", "severity", check),
                f"{check} has a lower severity: {said[0]} -> {said[1]}",
            )


def _ranks(spec: Spec, check: str) -> tuple[int, int, int]:
    """How a failure, something missing and a notice of this check end: 1 warns, 2 fails
    (`checks.interface` says it of statuses)."""
    said = spec.checklist.severity.get(check)
    if said is not None:
        return (_RANKS[said],) * 3
    return 2, 2 if spec.checklist.profile == "strict" else 1, 1


def _determinism(base: Spec, head: Spec) -> _Found:
    allowed = {item.flag for item in base.determinism.allow}
    for number, item in enumerate(head.determinism.allow):
        if item.flag not in allowed:
            yield (
                ("determinism", "allow", number),
                f"now leaves off {item.flag}: {shortened(escaped(item.reason))}",
            )
    if head.determinism.allow_nonfinite and not base.determinism.allow_nonfinite:
        yield ("determinism", "allow-nonfinite"), "losses and parameters need no longer be finite"
    if head.determinism.repeat < base.determinism.repeat:
        message = (
            f"fewer deterministic runs are compared: {base.determinism.repeat} -> "
            f"{head.determinism.repeat}"
        )
        yield ("determinism", "repeat"), message
    gone = [name for name in base.robustness.vary if name not in head.robustness.vary]
    if gone:
        yield ("robustness", "vary"), f"the second run is no longer varied in: {', '.join(gone)}"
    if base.robustness.stress and not head.robustness.stress:
        yield ("robustness", "stress"), "no run is stressed any more: true -> false"
    old, new = base.determinism.tolerance, head.determinism.tolerance
    if new is not None and old is None:
        message = (
            f"bits need no longer be equal: bitwise -> losses within {new.loss:g}, weights within "
            f"{new.weights:g}"
        )
        yield ("determinism", "compare"), message
    elif new is not None and old is not None:
        for key, before, after in (
            ("loss", old.loss, new.loss),
            ("weights", old.weights, new.weights),
        ):
            if after > before:
                yield (
                    ("determinism", "compare", key),
                    f"the tolerance was raised: {before:g} -> {after:g}",
                )


def _train(base: Spec, head: Spec) -> _Found:
    old, new = base.train, head.train
    if (old.run, old.snippet) != (new.run, new.snippet):
        programs = [
            train.run if train.run is not None else train.snippet or "" for train in (old, new)
        ]
        yield (
            ("train", "run" if new.run is not None else "snippet"),
            f"what is run changed: {_change(*programs)}",
        )
    if _other_path(old.working_directory, new.working_directory):
        folders = (posixpath.normpath(train.working_directory) for train in (old, new))
        yield (
            ("train", "working-directory"),
            f"training starts in another folder: {_change(*folders)}",
        )
    if new.steps is not None and (old.steps is None or new.steps < old.steps):
        steps = "to the end" if old.steps is None else f"{old.steps}"
        yield (
            ("train", "steps"),
            f"fewer optimizer steps are run and compared: {steps} -> {new.steps}",
        )
    # The first few variables by themselves, the rest as a number: a flood of them must not hide
    # what stands behind it.
    changed = [
        name for name in sorted(old.env.keys() | new.env) if old.env.get(name) != new.env.get(name)
    ]
    for name in changed[:_FEW]:
        yield (
            ("train", "env", name),
            f"the training's environment changed: {_change(old.env.get(name), new.env.get(name))}",
        )
    if len(changed) > _FEW:
        yield (
            ("train", "env"),
            f"{len(changed) - _FEW} more variables of the training's environment changed",
        )


def _recorded(base: Spec, head: Spec) -> _Found:
    """Seeds, captured steps and artifacts, cost."""
    old, new = base.random_state.seeds, head.random_state.seeds
    if len(new) < len(old):
        yield (
            ("random-state", "seeds"),
            f"fewer seeds are declared: {_listed(old)} -> {_listed(new)}",
        )
    before, after = base.capture, head.capture
    if after.every > before.every:
        steps = [
            "step" if every == 1 else f"{every} steps" for every in (before.every, after.every)
        ]
        yield (
            ("capture", "every"),
            f"fewer steps are compared: every {steps[0]} -> every {steps[1]}",
        )
    for glob in dict.fromkeys(before.artifacts):
        if not any(_covers(other, glob) for other in after.artifacts):
            yield ("capture", "artifacts"), f"no longer compares every file of {_text(glob)}"
    if base.cost.measure and not head.cost.measure:
        yield ("cost", "measure"), "what determinism costs is no longer measured: true -> false"
    budget, now = base.cost.max_percent, head.cost.max_percent
    if budget is not None and now is None:
        yield ("cost", "max-percent"), f"the budget of determinism is gone: {budget:g} % -> none"
    elif budget is not None and now is not None and now > budget:
        yield (
            ("cost", "max-percent"),
            f"the budget of determinism was raised: {budget:g} % -> {now:g} %",
        )


def _covers(glob: str, other: str) -> bool:
    """Whether every file that `other` matches is one that `glob` matches, as far as that is plain
    from the two texts."""
    if glob == other:
        return True
    parts, others = glob.split("/"), other.split("/")
    if len(parts) != len(others) or "**" in parts or any(sign in glob + other for sign in "[?"):
        return False
    return all(
        fnmatchcase(name, part) and part.startswith(".") == name.startswith(".")
        for part, name in zip(parts, others, strict=True)
    )


def _environment(base: Spec, head: Spec) -> _Found:
    """`env` and `hardware`."""
    old, new = base.env.lockfile, head.env.lockfile
    if old is not None and new is None:
        yield ("env", "lockfile"), f"no lockfile is required any more: {_text(old)} -> none"
    elif old is not None and new is not None and _other_path(old, new):
        yield ("env", "lockfile"), f"another lockfile is required: {_text(old)} -> {_text(new)}"
    old, new = base.env.image, head.env.image
    if old is not None and new is None:
        yield ("env", "image"), f"no container image is required any more: {_text(old)} -> none"
    elif old is not None and new is not None and "@" in old and "@" not in new:
        yield ("env", "image"), f"the image is no longer pinned by its digest: {_change(old, new)}"
    before, after = base.hardware, head.hardware
    if before.device is not None and after.device != before.device and after.device != "cuda":
        message = (
            f"the device {before.device} is no longer required: {before.device} -> "
            f"{after.device or 'any'}"
        )
        yield ("hardware", "device"), message
    if before.gpus is not None and after.gpus is None:
        yield ("hardware", "gpus"), f"no number of GPUs is required any more: {before.gpus} -> any"
    old, new = before.gpu_model, after.gpu_model
    if old is not None and new is None:
        yield ("hardware", "gpu-model"), f"no GPU model is required any more: {_text(old)} -> any"
    elif old is not None and new is not None and new.lower() in old.lower() and len(new) < len(old):
        yield ("hardware", "gpu-model"), f"more GPU models will do: {_change(old, new)}"


def _data(base: Spec, head: Spec, line_of: LineOf) -> Iterator[WeakenedCheck]:
    # items that a .dvc file stands for have no line of their own in the spec
    plain = not any(item.source for item in head.data)
    now = {posixpath.normpath(item.path): (number, item) for number, item in enumerate(head.data)}
    for old in base.data:
        number, new = now.get(posixpath.normpath(old.path), (0, None))
        if new is None:
            message = f"{_text(old.path)} is no longer declared, so it is no longer verified"
            yield WeakenedCheck("data", message, line_of(("data",)))
            continue
        for key, message in _digests(old, new):
            yield WeakenedCheck(
                f"data.{key}",
                message,
                new.source or line_of(("data", number, key) if plain else ("data", key)),
            )


def _digests(old: DataItem, new: DataItem) -> Iterator[tuple[str, str]]:
    """(key, sentence) of each digest that is gone or another. One that is gone where a stronger one
    stands weakens nothing."""
    name = _text(old.path)
    sizes = [None if item.size is None else str(item.size) for item in (old, new)]
    for key, before, after, stronger in (
        ("sha256", old.sha256, new.sha256, None),
        ("md5", old.md5, new.md5, new.sha256),
        ("size", sizes[0], sizes[1], new.sha256 or new.md5),
    ):
        if before is not None and after is None and stronger is None:
            yield key, f"the {key} of {name} is gone: {_short(before)} -> none"
        elif before is not None and after is not None and before != after:
            yield (
                key,
                (
                    f"the {key} of {name} changed, so it stands for other bytes: {_short(before)} "
                    f"-> {_short(after)}"
                ),
            )


def _baseline(base: Baseline | None, head: Baseline | None) -> Iterator[WeakenedCheck]:
    if base is None:
        return
    if head is None:
        entries = f"{len(base.entries)} platform" + ("" if len(base.entries) == 1 else "s")
        yield WeakenedCheck(
            FILE_NAME, f"the baseline is gone, with what it recorded for {entries}", FILE_NAME
        )
        return
    for root, old in sorted(base.entries.items()):
        new = head.entries.get(root)
        if new is None:
            yield WeakenedCheck(
                FILE_NAME,
                f"the entry of platform {_short(root)} is gone, recorded {old.recorded}",
                FILE_NAME,
            )
        elif message := _renewed(old, new):
            yield WeakenedCheck(FILE_NAME, message, FILE_NAME)


def _renewed(old: Entry, new: Entry) -> str:
    """What became of one platform's entry, empty where it records the same results or more."""
    parts = _no_longer(old, new)
    if not parts:
        return ""
    named = listed([shortened(escaped(part)) for part in parts], _FEW)
    platform = _short(old.platform)
    if old.config_hash == new.config_hash:
        return (
            f"rewritten: the same config hash {_short(old.config_hash)} now records other results "
            f"on platform {platform}: {named}"
        )
    return f"renewed: inputs changed and other results are recorded on platform {platform}: {named}"


def _no_longer(old: Entry, new: Entry) -> tuple[str, ...]:
    """The parts of the old results that the new ones do not hold as they were."""
    now = {result.seed: result for result in new.outcomes}
    parts: dict[str, None] = {}
    for result in old.outcomes:
        other = now.get(result.seed)
        if other is None:
            parts[f"seed {result.seed}"] = None
            continue
        parts |= dict.fromkeys(
            part for part in unlike((result,), (other,)) if getattr(result, part, "") is not None
        )
        parts |= {
            f"artifact {name}": None for name in sorted(result.artifacts.keys() - other.artifacts)
        }
    return tuple(parts)


def _change(before: str | None, after: str | None) -> str:
    """Two texts with an arrow, each cut to its part around the first difference."""
    return f"{_around(before, after)} -> {_around(after, before)}"


def _around(value: str | None, other: str | None) -> str:
    if value is None:
        return "none"
    start = next(
        (index for index, (a, b) in enumerate(zip(value, other or "", strict=False)) if a != b),
        min(len(value), len(other or "")),
    )
    return _text(value if start < 30 else f"…{value[start - 20 :]}")


def _text(value: str) -> str:
    """Text from the spec as a sentence holds it: in back quotes, on one line, cut short."""
    return f"`{shortened(escaped(value))}`"


def _short(digest: str) -> str:
    name, colon, digits = digest.rpartition(":")
    return name + colon + digits[:12]


def _listed(seeds: tuple[int, ...]) -> str:
    few = ", ".join(str(seed) for seed in seeds[:_FEW])
    return f"[{few}]" if len(seeds) <= _FEW else f"[{few}, …] ({len(seeds)})"


def _other_path(old: str, new: str) -> bool:
    return posixpath.normpath(old) != posixpath.normpath(new)
