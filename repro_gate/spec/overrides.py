"""The command line laid over the file: `--set key=value`, `--seed`, `--steps`.
Pure functions: the document that comes in is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from repro_gate.spec.document import Document, Place, parse
from repro_gate.spec.errors import KeyPath, Problem, Refused, dotted
from repro_gate.spec.schema import property_at

MAX_VALUE = 1 << 16  # characters of one option

Entry = TypeVar("Entry")


def with_overrides(document: Document, settings: Sequence[str], *, seed: int | None = None, steps: int | None = None) -> Document:
    """The document with every `key=value` of `settings` set, in order, then `--seed` (in place of `seeds`) and `--steps`.

    A setting that cannot be applied is added to the document's problems.
    """
    for setting in settings:
        try:
            document = _with_setting(document, setting)
        except Refused as refused:
            document = _with_problem(document, refused.problem)
    if seed is not None:
        document = _without(document, ("random-state", "seeds"))
        document = _with_option(document, ("random-state", "seed"), seed, f"--seed {seed}")
    if steps is not None:
        document = _with_option(document, ("train", "steps"), steps, f"--steps {steps}")
    return document


def _with_setting(document: Document, setting: str) -> Document:
    origin = f"--set {setting}"
    name, equals, text = setting.partition("=")
    path: KeyPath = tuple(int(part) if part.isascii() and part.isdigit() and len(part) < 6 else part for part in name.strip().split("."))
    if not equals or "" in path or len(setting) > MAX_VALUE:
        raise Refused(Problem(None, None, "", "wanted `key=value`, such as `--set train.steps=10`", origin))
    return _put(document, path, parse(text, origin), origin)


def _with_option(document: Document, path: KeyPath, number: int, origin: str) -> Document:
    try:
        return _put(document, path, Document(number, {}, {(): Place(None, None, origin)}, {(): str(number)}), origin)
    except Refused as refused:
        return _with_problem(document, refused.problem)


def _put(document: Document, path: KeyPath, value: Document, origin: str) -> Document:
    """The document with `value` at `path`; mappings and lists on the way are made where there are none."""
    place = Place(None, None, origin)
    data: Any = copy.deepcopy(document.data)
    here = data
    done: KeyPath = ()
    made: dict[KeyPath, Place] = {}
    for depth, name in enumerate(path):
        _enterable(here, name, done, origin)
        part = name if isinstance(here, list) else str(name)
        done = (*done, part)
        if isinstance(here, list) and part == len(here):
            here.append(None)
        if depth == len(path) - 1:
            here[part] = value.data
        elif (here.get(part) if isinstance(here, dict) else here[part]) is None:
            here[part] = [] if _is_list(done) else {}
            made[done] = place
        here = here[part]
    return Document(
        data,
        keys={**made, **_outside(document.keys, done), done: place, **_moved(value.keys, done)},
        values={**_outside(document.values, done), **made, done: place, **_moved(value.values, done)},
        literals={**_outside(document.literals, done), **_moved(value.literals, done)},
        problems=(*document.problems, *(_problem_moved(problem, done) for problem in value.problems)),
    )


def _moved(entries: Mapping[KeyPath, Entry], path: KeyPath) -> dict[KeyPath, Entry]:
    return {path + below: entry for below, entry in entries.items()}


def _problem_moved(problem: Problem, path: KeyPath) -> Problem:
    return replace(problem, key=".".join(filter(None, (dotted(path), problem.key))))


def _enterable(here: Any, part: str | int, path: KeyPath, origin: str) -> None:
    """Raise `Refused` where `part` cannot be set in `here`, which stands at `path`."""
    if isinstance(here, dict):
        return
    if not isinstance(here, list):
        said = "is no mapping and has no keys of its own"
    elif not isinstance(part, int):
        said = f"is a list, name the entry by its number: `{dotted((*path, 0))}`"
    elif part > len(here):
        said = f"has no such entry, the next one to add is `{dotted((*path, len(here)))}`"
    else:
        return
    raise Refused(Problem(None, None, "", f"`{dotted(path) or 'the file'}` {said}", origin))


def _is_list(path: KeyPath) -> bool:
    return (property_at(path) or {}).get("type") == "array"


def _without(document: Document, path: KeyPath) -> Document:
    data = copy.deepcopy(document.data)
    section = data.get(path[0]) if isinstance(data, dict) else None
    if isinstance(section, dict):
        section.pop(path[1], None)
    keys, values, literals = _outside(document.keys, path), _outside(document.values, path), _outside(document.literals, path)
    return Document(data, keys, values, literals, document.problems)


def _outside(entries: Mapping[KeyPath, Entry], path: KeyPath) -> dict[KeyPath, Entry]:
    """The entries that do not stand at `path` or below it, in a dict of their own."""
    return {key: entry for key, entry in entries.items() if key[: len(path)] != path}


def _with_problem(document: Document, problem: Problem) -> Document:
    return replace(document, problems=(*document.problems, problem))
