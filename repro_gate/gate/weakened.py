"""Which checks a change weakens compared with its base: in `repro.yml`, and in `repro.baseline.yml`. Pure.

What asks for more, and what asks for something else of the same weight (another seed, a newer image digest), is not listed. Three things
without a direction are: what is run, its environment, and the bytes of declared data; `python train.py` -> `true` is the simplest cheat.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from itertools import chain

from repro_gate.baseline.model import FILE_NAME, Baseline, Entry
from repro_gate.baseline.status import unlike
from repro_gate.report.model import WeakenedCheck
from repro_gate.spec.errors import KeyPath, escaped, shortened
from repro_gate.spec.model import AllowedFlag, DataItem, Spec

PlaceOf = Callable[[tuple[str | int, ...]], str]

_RANKS = {"warn": 1, "fail": 2}
_MOST_NAMED = 5  # parts of an outcome in one sentence
_FEW = 5  # changed variables that are listed by themselves


@dataclass(frozen=True)
class _Less:
    """One finding: the path of its key in the change's spec, the sentence, and where it stands if not at that key."""

    path: KeyPath
    message: str
    where: str = ""


def weakened(
    base: Spec, head: Spec, old_baseline: Baseline | None, new_baseline: Baseline | None, place_of: PlaceOf | None = None
) -> tuple[WeakenedCheck, ...]:
    """Every check that `head` weakens compared with `base`: first who judges and how strictly, then the baseline, then what is
    run and recorded.

    `place_of` gives the place of a key of the change's spec (`repro.yml:12`), or an empty text.
    """
    rules = chain.from_iterable(section(base, head) for section in (_rules, _checklist, _determinism))
    rest = chain.from_iterable(section(base, head) for section in (_train, _random_state, _capture, _cost, _env, _hardware, _data))
    return (
        *(_weakening(item, place_of) for item in rules),
        *_baseline(old_baseline, new_baseline),
        *(_weakening(item, place_of) for item in rest),
    )


def _weakening(item: _Less, place_of: PlaceOf | None) -> WeakenedCheck:
    key = ".".join(part for part in item.path if isinstance(part, str))
    return WeakenedCheck(key, item.message, item.where or (place_of(item.path) if place_of is not None else ""))


def _train(base: Spec, head: Spec) -> Iterator[_Less]:
    old, new = base.train, head.train
    if (old.run, old.snippet) != (new.run, new.snippet):
        key = "run" if new.run is not None else "snippet"
        yield _Less(("train", key), f"what is run changed: {_change(_program(base), _program(head))}")
    before, after = posixpath.normpath(old.working_directory), posixpath.normpath(new.working_directory)
    if before != after:
        yield _Less(("train", "working-directory"), f"training starts in another folder: {_change(before, after)}")
    if new.steps is not None and (old.steps is None or new.steps < old.steps):
        before = "to the end" if old.steps is None else f"{old.steps}"
        yield _Less(("train", "steps"), f"fewer optimizer steps are run and compared: {before} -> {new.steps}")
    yield from _environment(old.env, new.env)


def _environment(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[_Less]:
    """The first few variables by themselves, the rest as a number: a flood of them must not hide what stands behind it."""
    changed = [name for name in sorted(old.keys() | new) if old.get(name) != new.get(name)]
    for name in changed[:_FEW]:
        yield _Less(("train", "env", name), f"the training's environment changed: {_change(old.get(name), new.get(name))}")
    if len(changed) > _FEW:
        yield _Less(("train", "env"), f"{len(changed) - _FEW} more variables of the training's environment changed")


def _program(spec: Spec) -> str:
    return spec.train.run if spec.train.run is not None else spec.train.snippet or ""


def _random_state(base: Spec, head: Spec) -> Iterator[_Less]:
    old, new = base.random_state.seeds, head.random_state.seeds
    if len(new) < len(old):
        yield _Less(("random-state", "seeds"), f"fewer seeds are gated: {_listed(old)} -> {_listed(new)}")


def _determinism(base: Spec, head: Spec) -> Iterator[_Less]:
    allowed = {item.flag for item in base.determinism.allow}
    for place, item in enumerate(head.determinism.allow):
        if item.flag not in allowed:
            yield _Less(("determinism", "allow", place), f"now inputs off {_flag(item)}")
    if head.determinism.allow_nonfinite and not base.determinism.allow_nonfinite:
        yield _Less(("determinism", "allow-nonfinite"), "losses and parameters need no longer be finite")
    old, new = base.determinism.tolerance, head.determinism.tolerance
    if new is None:
        return
    if old is None:
        message = f"bits need no longer be equal: bitwise -> losses within {new.loss:g}, weights within {new.weights:g}"
        yield _Less(("determinism", "compare"), message)
        return
    for key, before, after in (("loss", old.loss, new.loss), ("weights", old.weights, new.weights)):
        if after > before:
            yield _Less(("determinism", "compare", key), f"the tolerance was raised: {before:g} -> {after:g}")


def _flag(item: AllowedFlag) -> str:
    return f"{item.flag}: {shortened(escaped(item.reason))}"


def _capture(base: Spec, head: Spec) -> Iterator[_Less]:
    old, new = base.capture, head.capture
    if new.every > old.every:
        yield _Less(("capture", "every"), f"fewer steps are compared: every {_steps(old.every)} -> every {_steps(new.every)}")
    for glob in dict.fromkeys(old.artifacts):
        if not any(_covers(other, glob) for other in new.artifacts):
            yield _Less(("capture", "artifacts"), f"no longer compares every file of {_text(glob)}")


def _covers(glob: str, other: str) -> bool:
    """Whether every file that `other` matches is one that `glob` matches, as far as that is plain from the two texts."""
    if glob == other:
        return True
    parts, others = glob.split("/"), other.split("/")
    if len(parts) != len(others) or "**" in parts or any(sign in glob + other for sign in "[?"):
        return False
    return all(fnmatchcase(name, part) and part.startswith(".") == name.startswith(".") for part, name in zip(parts, others, strict=True))


def _cost(base: Spec, head: Spec) -> Iterator[_Less]:
    old, new = base.cost, head.cost
    if old.measure and not new.measure:
        yield _Less(("cost", "measure"), "what determinism costs is no longer measured: true -> false")
    if old.max_percent is not None and (new.max_percent is None or new.max_percent > old.max_percent):
        what = "is gone" if new.max_percent is None else "was raised"
        after = "none" if new.max_percent is None else f"{new.max_percent:g} %"
        yield _Less(("cost", "max-percent"), f"the budget of determinism {what}: {old.max_percent:g} % -> {after}")


def _data(base: Spec, head: Spec) -> Iterator[_Less]:
    plain = not any(item.source for item in head.data)  # items that a .dvc file stands for have no place of their own in the spec
    now = {posixpath.normpath(item.path): (place, item) for place, item in enumerate(head.data)}
    for old in base.data:
        place, new = now.get(posixpath.normpath(old.path), (0, None))
        if new is None:
            yield _Less(("data",), f"{_text(old.path)} is no longer declared, so it is no longer verified")
            continue
        for key, message in _digests(old, new):
            yield _Less(("data", place, key) if plain else ("data", key), message, new.source)


def _digests(old: DataItem, new: DataItem) -> Iterator[tuple[str, str]]:
    """(key, sentence) of each digest that is gone or another. One that is gone where a stronger one stands asks for nothing less."""
    name = _text(old.path)
    for key, before, after, stronger in (
        ("sha256", old.sha256, new.sha256, None),
        ("md5", old.md5, new.md5, new.sha256),
        ("size", _digits(old.size), _digits(new.size), new.sha256 or new.md5),
    ):
        if before is not None and after is None and stronger is None:
            yield key, f"the {key} of {name} is gone: {_short(before)} -> none"
        elif before is not None and after is not None and before != after:
            yield key, f"the {key} of {name} changed, so it stands for other bytes: {_short(before)} -> {_short(after)}"


def _other_path(old: str, new: str) -> bool:
    return posixpath.normpath(old) != posixpath.normpath(new)


def _env(base: Spec, head: Spec) -> Iterator[_Less]:
    if base.env.lockfile is not None and head.env.lockfile is None:
        yield _Less(("env", "lockfile"), f"no lockfile is required any more: {_text(base.env.lockfile)} -> none")
    elif base.env.lockfile is not None and head.env.lockfile is not None and _other_path(base.env.lockfile, head.env.lockfile):
        message = f"another lockfile is required: {_text(base.env.lockfile)} -> {_text(head.env.lockfile)}"
        yield _Less(("env", "lockfile"), message)
    old, new = base.env.image, head.env.image
    if old is not None and new is None:
        yield _Less(("env", "image"), f"no container image is required any more: {_text(old)} -> none")
    elif old is not None and new is not None and "@" in old and "@" not in new:
        yield _Less(("env", "image"), f"the image is no longer pinned by its digest: {_change(old, new)}")


def _hardware(base: Spec, head: Spec) -> Iterator[_Less]:
    old, new = base.hardware, head.hardware
    if old.device is not None and new.device != old.device and new.device != "cuda":
        yield _Less(("hardware", "device"), f"the device {old.device} is no longer required: {old.device} -> {new.device or 'any'}")
    if old.gpus is not None and new.gpus is None:
        yield _Less(("hardware", "gpus"), f"no number of GPUs is required any more: {old.gpus} -> any")
    if old.gpu_model is not None and new.gpu_model != old.gpu_model:
        if new.gpu_model is None:
            yield _Less(("hardware", "gpu-model"), f"no GPU model is required any more: {_text(old.gpu_model)} -> any")
        elif new.gpu_model.lower() in old.gpu_model.lower() and len(new.gpu_model) < len(old.gpu_model):
            yield _Less(("hardware", "gpu-model"), f"more GPU models will do: {_change(old.gpu_model, new.gpu_model)}")


def _checklist(base: Spec, head: Spec) -> Iterator[_Less]:
    if (base.checklist.profile, head.checklist.profile) == ("strict", "basic"):
        yield _Less(("checklist", "profile"), "what is missing warns and no longer fails: strict -> basic")
    ends, first = _ends(base), {waiver.check: place for place, waiver in reversed([*enumerate(head.checklist.waive)])}
    for place, waiver in enumerate(head.checklist.waive):
        end = ends.get(waiver.check)
        if first[waiver.check] != place:
            continue
        if waiver.check not in ends:
            until = "without an end" if waiver.until is None else f"until {waiver.until}"
            yield _Less(("checklist", "waive", place), f"{waiver.check} is waived {until}: {shortened(escaped(waiver.reason))}")
        elif end is not None and (waiver.until is None or waiver.until > end):
            message = f"the waiver of {waiver.check} lasts longer: until {end} -> {waiver.until or 'without an end'}"
            yield _Less(("checklist", "waive", place), message)
    old, new = base.checklist.severity, head.checklist.severity
    for check in sorted(old.keys() | new):
        if old.get(check) != new.get(check) and any(
            after < before for before, after in zip(_worth(base, check), _worth(head, check), strict=True)
        ):
            message = f"{check} has a lower severity: {old.get(check, 'as its profile says')} -> {new.get(check, 'as its profile says')}"
            yield _Less(("checklist", "severity", check), message)


def _ends(spec: Spec) -> Mapping[str, date | None]:
    """Check -> the day on which its waiver ends, None where it never does. Of two for one check the first counts, as in `run_checks`."""
    ends: dict[str, date | None] = {}
    for waiver in spec.checklist.waive:
        ends.setdefault(waiver.check, waiver.until)
    return ends


def _worth(spec: Spec, check: str) -> tuple[int, int, int]:
    """What a failure, something missing and a notice of this check are worth: 1 warns, 2 fails (`checks.interface` says it of statuses)."""
    said = spec.checklist.severity.get(check)
    if said is not None:
        return (_RANKS[said],) * 3
    return 2, 2 if spec.checklist.profile == "strict" else 1, 1


def _rules(base: Spec, head: Spec) -> Iterator[_Less]:
    if (base.baseline.on_change, head.baseline.on_change) == ("fail", "notice"):
        yield _Less(("baseline", "on-change"), "a result that differs from the recorded one no longer fails: fail -> notice")
    if (base.policy, head.policy) == ("base", "head"):
        yield _Less(("policy",), "a change would be judged by its own spec: base -> head")


def _baseline(base: Baseline | None, head: Baseline | None) -> Iterator[WeakenedCheck]:
    if base is None:
        return
    if head is None:
        entries = f"{len(base.entries)} platform" + ("" if len(base.entries) == 1 else "s")
        yield WeakenedCheck(FILE_NAME, f"the baseline is gone, with what it recorded for {entries}", FILE_NAME)
        return
    for root, old in sorted(base.entries.items()):
        new = head.entries.get(root)
        if new is None:
            yield WeakenedCheck(FILE_NAME, f"the entry of platform {_short(root)} is gone, recorded {old.recorded}", FILE_NAME)
        elif message := _renewed(old, new):
            yield WeakenedCheck(FILE_NAME, message, FILE_NAME)


def _renewed(old: Entry, new: Entry) -> str:
    """What became of one platform's entry, empty where it records the same results or more."""
    parts = _no_longer(old, new)
    if not parts:
        return ""
    named = ", ".join(shortened(escaped(part)) for part in parts[:_MOST_NAMED])
    named += f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    platform = _short(old.platform)
    if old.config_hash == new.config_hash:
        return f"rewritten: the same config hash {_short(old.config_hash)} now records other results on platform {platform}: {named}"
    return f"renewed: inputs changed and other results are recorded on platform {platform}: {named}"


def _no_longer(old: Entry, new: Entry) -> tuple[str, ...]:
    """The parts of the old outcomes that the new ones do not hold as they were."""
    now = {outcome.seed: outcome for outcome in new.outcomes}
    parts: dict[str, None] = {}
    for outcome in old.outcomes:
        other = now.get(outcome.seed)
        if other is None:
            parts[f"seed {outcome.seed}"] = None
            continue
        parts |= dict.fromkeys(part for part in unlike((outcome,), (other,)) if getattr(outcome, part, "") is not None)
        parts |= {f"artifact {name}": None for name in sorted(outcome.artifacts.keys() - other.artifacts)}
    return tuple(parts)


def _change(before: str | None, after: str | None) -> str:
    """Two texts with an arrow, each cut to its part around the first difference."""
    return f"{_around(before, after)} -> {_around(after, before)}"


def _around(value: str | None, other: str | None) -> str:
    if value is None:
        return "none"
    start = next((place for place, (a, b) in enumerate(zip(value, other or "", strict=False)) if a != b), min(len(value), len(other or "")))
    return _text(value if start < 30 else f"…{value[start - 20 :]}")


def _text(value: str) -> str:
    """Text from the spec as a sentence holds it: in back quotes, on one line, cut short."""
    return f"`{shortened(escaped(value))}`"


def _short(digest: str) -> str:
    name, colon, digits = digest.rpartition(":")
    return name + colon + digits[:12]


def _digits(number: int | None) -> str | None:
    return None if number is None else str(number)


def _listed(seeds: tuple[int, ...]) -> str:
    few = ", ".join(str(seed) for seed in seeds[:_MOST_NAMED])
    return f"[{few}]" if len(seeds) <= _MOST_NAMED else f"[{few}, …] ({len(seeds)})"


def _steps(number: int) -> str:
    return "step" if number == 1 else f"{number} steps"
