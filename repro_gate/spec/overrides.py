"""The command line laid over the file: `--set key=value`, `--seed`, `--steps`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from repro_gate.spec.document import Document, Place, parse
from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted
from repro_gate.spec.schema import property_at

MAX_VALUE = 1 << 16  # characters of one option


def with_overrides(
    document: Document,
    settings: Sequence[str],
    *,
    seed: int | None = None,
    steps: int | None = None,
) -> Document:
    """A document with every `key=value` of `settings` set, in order, then `--seed` (in place of
    `seeds`) and `--steps`.

    A setting that cannot be applied is added to the document's problems.
    """
    asked = [(f"--set {setting}", setting) for setting in settings]
    asked += [(f"--seed {seed}", f"random-state.seed={seed}")] if seed is not None else []
    asked += [(f"--steps {steps}", f"train.steps={steps}")] if steps is not None else []
    document = copy.deepcopy(document)
    for origin, setting in asked:
        changed = copy.deepcopy(document)
        section = changed.data.get("random-state") if isinstance(changed.data, dict) else None
        if origin.startswith("--seed ") and isinstance(section, dict):
            section.pop("seeds", None)
            _forget(changed, ("random-state", "seeds"))
        try:
            _set(changed, setting, origin)
            document = changed
        except Refused as refused:
            document.problems.append(refused.problem)
    return document


def _set(document: Document, setting: str, origin: str) -> None:
    """Put a value where the setting says; mappings and lists on the way are made where there are
    none."""
    name, equals, text = setting.partition("=")
    path: KeyPath = tuple(
        int(part) if part.isascii() and part.isdigit() and len(part) < 6 else part
        for part in name.strip().split(".")
    )
    if not equals or "" in path or len(setting) > MAX_VALUE:
        raise Refused(
            Problem(None, None, "", "wanted `key=value`, such as `--set train.steps=10`", origin)
        )
    value, place = parse(text, origin), Place(None, None, origin)
    here, done = document.data, KeyPath()
    for depth, name_or_number in enumerate(path, 1):
        _enterable(here, name_or_number, done, origin)
        part = name_or_number if isinstance(here, list) else str(name_or_number)
        done = (*done, part)
        if isinstance(here, list) and part == len(here):
            here.append(None)
        if depth == len(path):
            here[part] = value.data
        elif (here.get(part) if isinstance(here, dict) else here[part]) is None:
            here[part] = [] if (property_at(done) or {}).get("type") == "array" else {}
            document.keys[done] = document.values[done] = place
        here = here[part]
    _forget(document, done)
    document.keys.update(
        {done: place, **{done + below: found for below, found in value.keys.items()}}
    )
    document.values.update(
        {**{done + below: found for below, found in value.values.items()}, done: place}
    )
    document.literals.update({done + below: found for below, found in value.literals.items()})
    document.problems += [
        replace(problem, key=".".join(filter(None, (dotted(done), problem.key))))
        for problem in value.problems
    ]


def _forget(document: Document, path: KeyPath) -> None:
    """Forget the places at `path` and below it."""
    for found in (document.keys, document.values, document.literals):
        for key in [key for key in found if key[: len(path)] == path]:
            del found[key]


def _enterable(here: Any, part: str | int, path: KeyPath, origin: str) -> None:
    """Raise `Refused` where `part` cannot be set in `here`, which stands at `path`."""
    if isinstance(here, dict):
        return
    if not isinstance(here, list):
        said = "is not a mapping and has no keys of its own"
    elif not isinstance(part, int):
        said = f"is a list, name the entry by its number: `{dotted((*path, 0))}`"
    elif part > len(here):
        said = f"has no such entry, the next one to add is `{dotted((*path, len(here)))}`"
    else:
        return
    raise Refused(Problem(None, None, "", f"`{dotted(path) or 'the file'}` {said}", origin))
