"""`repro.yml` to `Spec`: read the file, lay the command line over it, validate it, build the
dataclasses. All mistakes of a file are raised together, as one `SpecError`."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from repro_gate.files import NotRegular, leads_out, read_start
from repro_gate.spec import model
from repro_gate.spec.document import MAX_NODES, Document, Place, parse
from repro_gate.spec.errors import KeyPath, Problem, Refused, SpecError, dotted
from repro_gate.spec.model import Spec
from repro_gate.spec.validation import problems_in, seconds, shown, value_place

FILE_NAME = "repro.yml"
MAX_BYTES = 1 << 20

_CONFLICT = re.compile(r"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)
_LINKED = "let the link lead to a file of the checkout, or name the spec by its own path"
_START_ONE = (
    "write one with `repro-gate init`, or name the file: `repro-gate run path/to/repro.yml`"
)


def load_spec(
    path: Path, overrides: Sequence[str] = (), *, seed: int | None = None, steps: int | None = None
) -> Spec:
    """The spec at `path` (a file, or a folder that holds a `repro.yml`), with the command line's
    settings laid over it.

    `overrides` are `key=value` as `--set` takes them; `seed` and `steps` are `--seed` and
    `--steps`. Raises `SpecError` with all problems.
    """
    source = str(path)
    try:
        file = path / FILE_NAME if path.is_dir() else path
        source = str(file)
        raw = _bytes(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(source, [Problem(None, None, "", f"cannot be read: {reason}")]) from None
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    return load_spec_bytes(
        raw, source, Path(os.path.abspath(file)), overrides, seed=seed, steps=steps
    )


def load_spec_bytes(
    raw: bytes,
    source: str,
    path: Path,
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    steps: int | None = None,
) -> Spec:
    """A spec that stands elsewhere, in another commit say, as if it stood at `path`; `source` names
    it in mistakes. As `load_spec`."""
    try:
        document = document_of(raw)
        if not isinstance(document.data, dict):
            message = (
                f"found {shown(document.data)} at the top level, wanted keys: `version: 1` and "
                "`train: {run: …}`"
            )
            raise Refused(value_place(document, ()).problem((), message), remedy=_START_ONE)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    document = with_overrides(document, overrides, seed=seed, steps=steps)
    if problems := problems_in(document):
        raise SpecError(source, problems)
    spec = _spec(path, document)
    folder, checkout = (Path(os.path.realpath(place)) for place in (path.parent, checkout_of(path)))
    if not Path(os.path.normpath(folder / spec.train.working_directory)).is_relative_to(checkout):
        key = ("train", "working-directory")
        message = (
            f"found {shown(spec.train.working_directory)}, which leads out of the checkout, wanted "
            "a folder inside it"
        )
        raise SpecError(source, [value_place(document, key).problem(key, message)])
    return spec


def key_lines(path: Path) -> Mapping[KeyPath, int]:
    """The line of each key and value of the file at `path`, a spec that loads; empty where it
    cannot be read."""
    try:
        document = document_of(_bytes(path))
    except (Refused, OSError, ValueError):
        return {}
    places = {**document.values, **document.keys}
    return {key: place.line for key, place in places.items() if place.line is not None}


def _bytes(file: Path) -> bytes:
    """The file's start. Never reads more than a spec may be, nor from what is not a file (a pipe
    would hang, a device would not end)."""
    if why := leads_out(file, checkout_of(file)):
        raise Refused(
            Problem(None, None, "", f"a link leads to a file that {why}: it is not read"),
            remedy=_LINKED,
        )
    if not file.exists():
        raise Refused(Problem(None, None, "", "there is no such file"), remedy=_START_ONE)
    try:
        return read_start(file, MAX_BYTES + 1)
    except NotRegular:
        raise Refused(
            Problem(None, None, "", "this is not a regular file, wanted a YAML file"),
            remedy=_START_ONE,
        ) from None


def document_of(raw: bytes, *, max_nodes: int = MAX_NODES, what: str = "a spec") -> Document:
    """The bytes of a file as a document. Raises Refused for what none can be; `what` is the word
    for it in messages."""
    if len(raw) > MAX_BYTES:
        raise Refused(Problem(None, None, "", f"larger than 1 MiB, {what} is far smaller"))
    body = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode()
        column = len(before) - before.rfind("\n")
        message = f"not UTF-8: byte {body[error.start]:#04x}, save the file as UTF-8"
        raise Refused(Problem(before.count("\n") + 1, column, "", message)) from None
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        message = "a merge conflict stands here, resolve it and remove the markers"
        raise Refused(Problem(line, 1, "", message))
    return parse(text, max_nodes=max_nodes, what=what)


def checkout_of(file: Path) -> Path:
    """The checkout that a spec belongs to, by the path that names it, for the file may be a link:
    the nearest folder above with a `.git`; else the folder that the file lies in."""
    folder = Path(os.path.abspath(file)).parent
    above = [folder, *folder.parents]
    above += Path(
        os.path.realpath(folder), "-"
    ).parents  # a path that leads into the checkout through a link above it
    return next((place for place in above if os.path.lexists(place / ".git")), folder)


def _spec(path: Path, document: Document) -> Spec:
    """The dataclasses of a document without a mistake. A key that is left out keeps the dataclass's
    default."""
    found = _named(document.data, ())
    train, diagnosis = found["train"], found.get("diagnosis")
    for section in (train, diagnosis or {}):
        if "timeout" in section:
            section["timeout"] = seconds(section["timeout"])
    train["env"] = {name: document.literals["train", "env", name] for name in train.get("env", ())}
    if diagnosis is False:
        found["diagnosis"] = None
    random_state, determinism = found.get("random_state", {}), found.get("determinism", {})
    if "seed" in random_state:
        random_state["seeds"] = [random_state["seed"]]
    if isinstance(determinism.get("compare"), dict):
        determinism["tolerance"] = determinism["compare"]
    robustness = found.setdefault("robustness", {})
    vary = robustness.get("vary", True)
    varied = model.VARIED if vary is True else vary or ()
    # which is part of the recipe where the spec sets it
    left_out = "hash-seed" if "PYTHONHASHSEED" in train["env"] else None
    robustness["vary"] = [name for name in varied if name != left_out]
    for item in found.get("data", ()):
        if "sha256" in item:
            item["sha256"] = item["sha256"].lower()
    return msgspec.convert({**found, "path": path}, Spec)


def _named(value: Any, path: KeyPath) -> Any:
    """A copy with keys as the dataclasses spell them; JSON Schema takes 50.0 for a whole number,
    the dataclasses hold ints."""
    if isinstance(value, dict):
        is_free = path in (("train", "env"), ("checklist", "severity"))
        return {
            key if is_free else key.replace("-", "_"): _named(child, (*path, key))
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_named(child, (*path, index)) for index, child in enumerate(value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
