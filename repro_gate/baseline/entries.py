"""The plain data of a `repro.baseline.yml` to `Baseline`: every field checked for its type, length and form, every hash over inputs made
again. What is checked here came from an untrusted checkout. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, TypeVar

from repro_gate.baseline.config_hash import InputValue, hash_inputs, plain
from repro_gate.baseline.model import Baseline, Entry, Outcome
from repro_gate.baseline.results import MAX_CURVE
from repro_gate.spec.errors import KeyPath
from repro_gate.spec.validation import shown
from repro_gate.trace.format import MAX_STEP

VERSION = 1
MAX_TEXT = 4_096  # characters of a name or a value of the gate's own
MAX_INPUT = 100_000  # characters of an input's text: a snippet may be long
MAX_SEED = 2**32 - 1

_T = TypeVar("_T")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RECORDED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_POINT = re.compile(r"(\d{1,10}) (-?\d+(?:\.\d+)?(?:e[-+]\d+)?|nan|-?inf)", re.ASCII)
_ENTRY = ("config-hash", "recipe", "recorded", "tool-version", "outcomes", "recipe-inputs", "platform-inputs", "outside")
_OUTCOME = ("seed", "steps", "losses", "weights", "optimizer", "artifacts", "loss-curve")
_EDITED = "the entry was edited by hand, or two were merged"


class Wrong(Exception):
    """What is wrong with the value at `path`, or with the key there (`about_key`); `remedy` where the usual one does not help."""

    def __init__(self, path: KeyPath, message: str, *, about_key: bool = False, remedy: str = "") -> None:
        super().__init__(message)
        self.path, self.message, self.about_key, self.remedy = path, message, about_key, remedy


def lock_of(data: object) -> Baseline:
    """The baseline that this plain data is. Raises Wrong for the first thing that is not as `dump_baseline` writes it."""
    version = data.get("version") if isinstance(data, dict) else None
    if _is_int(version) and version > VERSION:
        message = f"written by a newer repro-gate: version {shown(version)}, this one reads {VERSION}"
        raise Wrong(
            ("version",), message, remedy="install the repro-gate that wrote it, or delete it and write it anew with `repro-gate baseline`"
        )
    fields = _fields(data, (), ("version", "entries"))
    if not _is_int(version) or version != VERSION:
        raise Wrong(("version",), f"found {shown(version)}, wanted {VERSION}")
    entries = _mapping(fields["entries"], ("entries",))
    return Baseline({root: _entry(root, value, ("entries", root)) for root, value in sorted(entries.items())})


def _entry(root: str, value: object, path: KeyPath) -> Entry:
    if not _DIGEST.fullmatch(root):
        raise Wrong(path, "found no platform root, wanted `sha256:` and 64 hex digits", about_key=True)
    fields = _fields(value, path, _ENTRY)
    entry = Entry(
        config_hash=_digest(fields["config-hash"], (*path, "config-hash")),
        recipe=_digest(fields["recipe"], (*path, "recipe")),
        platform=root,
        recipe_inputs=_inputs(fields["recipe-inputs"], (*path, "recipe-inputs")),
        platform_inputs=_inputs(fields["platform-inputs"], (*path, "platform-inputs")),
        outcomes=_outcomes(fields["outcomes"], (*path, "outcomes")),
        outside=_texts(fields["outside"], (*path, "outside"), _text),
        recorded=_text(fields["recorded"], (*path, "recorded")),
        tool_version=_text(fields["tool-version"], (*path, "tool-version")),
    )
    if not _RECORDED.fullmatch(entry.recorded):
        raise Wrong((*path, "recorded"), f"found {shown(entry.recorded)}, wanted a time such as 2026-08-01T12:00:00Z")
    _require_own_inputs(entry, path)
    return entry


def _require_own_inputs(entry: Entry, path: KeyPath) -> None:
    """Raises Wrong where recipe, platform root or config hash are not those of the recorded inputs."""
    real = hash_inputs(entry.recipe_inputs, entry.platform_inputs)
    if entry.recipe != real.recipe:
        raise Wrong((*path, "recipe"), f"the recipe-inputs below give {real.recipe}: {_EDITED}")
    if entry.platform != real.platform:
        raise Wrong(
            path, f"stands under a platform root that is not its own, its platform-inputs give {real.platform}: {_EDITED}", about_key=True
        )
    if entry.config_hash != real.config_hash:
        raise Wrong((*path, "config-hash"), f"recipe and platform root give {real.config_hash}: {_EDITED}")


def _outcomes(value: object, path: KeyPath) -> tuple[Outcome, ...]:
    if not isinstance(value, list) or not value:
        raise Wrong(path, f"found {shown(value)}, wanted a list with one outcome for each seed")
    outcomes = tuple(_outcome(item, (*path, place)) for place, item in enumerate(value))
    seeds = [outcome.seed for outcome in outcomes]
    for place, seed in enumerate(seeds):
        if seed in seeds[:place]:
            raise Wrong((*path, place, "seed"), f"seed {seed} stands twice")
    return outcomes


def _outcome(value: object, path: KeyPath) -> Outcome:
    fields = _fields(value, path, _OUTCOME)
    return Outcome(
        seed=_integer(fields["seed"], (*path, "seed"), MAX_SEED),
        steps=_integer(fields["steps"], (*path, "steps"), MAX_STEP),
        losses=_digest_or_none(fields["losses"], (*path, "losses")),
        weights=_digest_or_none(fields["weights"], (*path, "weights")),
        optimizer=_digest_or_none(fields["optimizer"], (*path, "optimizer")),
        artifacts=_texts(fields["artifacts"], (*path, "artifacts"), _digest),
        loss_curve=_curve(fields["loss-curve"], (*path, "loss-curve")),
    )


def _curve(value: object, path: KeyPath) -> tuple[tuple[int, str], ...]:
    """Lines of `STEP LOSS`, the loss as the shortest decimal of the float that it is."""
    lines = value.split("\n") if isinstance(value, str) and value else []
    if not isinstance(value, str) or len(lines) > MAX_CURVE:
        raise Wrong(path, f"found {len(lines)} lines, wanted at most {MAX_CURVE}" if lines else f"found {shown(value)}, wanted text")
    points: list[tuple[int, str]] = []
    for line in lines:
        found = _POINT.fullmatch(line)
        if found is None:
            raise Wrong(path, f"found {shown(line)}, wanted a step and its loss, such as `49 0.0123`")
        step, loss = int(found[1]), float(found[2])
        if points and step <= points[-1][0]:
            raise Wrong(path, f"step {step} comes after step {points[-1][0]}")
        if step > MAX_STEP or repr(loss) != found[2]:
            raise Wrong(path, f"found {shown(line)}, which no training writes so")
        points.append((step, loss.hex()))
    return tuple(points)


def _inputs(value: object, path: KeyPath) -> dict[str, InputValue]:
    found: dict[str, InputValue] = {}
    for name, item in _mapping(value, path).items():
        here = (*path, name)
        try:
            found[_bounded(name, here)] = plain(item)
        except ValueError as error:
            raise Wrong(here, str(error)) from None
        if found[name] != item:
            raise Wrong(here, f"found {shown(item)}, wanted no number beyond 2**53")
        size = len(json.dumps(item, ensure_ascii=False))
        if size > MAX_INPUT:
            raise Wrong(here, f"found {size:,} characters, wanted at most {MAX_INPUT:,}")
    return found


def _texts(value: object, path: KeyPath, read: Callable[[object, KeyPath], _T]) -> dict[str, _T]:
    """A mapping from names to what `read` makes of its values."""
    return {_bounded(name, (*path, name)): read(item, (*path, name)) for name, item in _mapping(value, path).items()}


def _text(value: object, path: KeyPath) -> str:
    if not isinstance(value, str):
        raise Wrong(path, f"found {shown(value)}, wanted text (a number in quotes)")
    return _bounded(value, path)


def _bounded(text: str, path: KeyPath) -> str:
    if len(text) > MAX_TEXT:
        raise Wrong(path, f"found {len(text):,} characters, wanted at most {MAX_TEXT:,}")
    return text


def _digest(value: object, path: KeyPath) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise Wrong(path, f"found {shown(value)}, wanted `sha256:` and 64 hex digits")
    return value


def _digest_or_none(value: object, path: KeyPath) -> str | None:
    return None if value is None else _digest(value, path)


def _integer(value: object, path: KeyPath, most: int) -> int:
    if not _is_int(value) or not 0 <= value <= most:
        raise Wrong(path, f"found {shown(value)}, wanted a whole number from 0 to {most}")
    return value


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _mapping(value: object, path: KeyPath) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(path, f"found {shown(value)}, wanted a mapping")
    return value


def _fields(value: object, path: KeyPath, names: tuple[str, ...]) -> Mapping[str, Any]:
    """A mapping with exactly these keys."""
    found = _mapping(value, path)
    for name in found:
        if name not in names:
            raise Wrong((*path, name), f"is not a key of a baseline, wanted {', '.join(names)}", about_key=True)
    for name in names:
        if name not in found:
            raise Wrong(path, f"`{name}` is missing", about_key=True)
    return found
