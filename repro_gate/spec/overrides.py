"""The command line laid over the file: `--set key=value`, `--seed`, `--steps`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from repro_gate.spec.document import Document, Place, parse
from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted

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
    """Put a value where the setting says; mappings on the way are made where there are none."""
    name, equals, text = setting.partition("=")
    path: KeyPath = tuple(name.strip().split("."))
    if not equals or "" in path or len(setting) > MAX_VALUE:
        raise Refused(
            Problem(None, None, "", "wanted `key=value`, such as `--set train.steps=10`", origin)
        )
    value, place = parse(text, origin), Place(None, None, origin)
    here = document.data
    for depth, part in enumerate(path):
        if not isinstance(here, dict):
            said = f"`{dotted(path[:depth]) or 'the file'}` is not a mapping, set it as a whole"
            raise Refused(Problem(None, None, "", said, origin))
        if depth + 1 == len(path):
            here[part] = value.data
        elif here.get(part) is None:
            here[part] = {}
            document.keys[path[: depth + 1]] = document.values[path[: depth + 1]] = place
        here = here[part]
    _forget(document, path)
    document.keys[path] = place
    document.keys.update({path + below: found for below, found in value.keys.items()})
    document.values.update({path + below: found for below, found in value.values.items()})
    document.values[path] = place
    document.literals.update({path + below: found for below, found in value.literals.items()})
    document.problems += [
        replace(problem, key=".".join(filter(None, (dotted(path), problem.key))))
        for problem in value.problems
    ]


def _forget(document: Document, path: KeyPath) -> None:
    """Forget the places at `path` and below it."""
    for found in (document.keys, document.values, document.literals):
        for key in [key for key in found if key[: len(path)] == path]:
            del found[key]
