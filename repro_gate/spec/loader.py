"""`repro.yml` to `Spec`: read the file, lay the command line over it, validate it, decode it. All
mistakes of a file are raised together, as one `SpecError`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from repro_gate.files import NotRegular, leads_out, read_start
from repro_gate.spec.document import MAX_BYTES, MAX_DEPTH, Document, compose, document_of, scalar
from repro_gate.spec.errors import KeyPath, Problem, Refused, SpecError, dotted
from repro_gate.spec.model import VARIED, Spec
from repro_gate.spec.validation import problems_in, quoted, seconds

FILE_NAME = "repro.yml"
MAX_VALUE = 1 << 16  # characters of one option

_LINKED = "let the link lead to a file of the checkout, or name the spec by its own path"
_START_ONE = (
    "write one with `repro-gate init`, or name the file: `repro-gate run path/to/repro.yml`"
)


def load_spec(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    steps: int | None = None,
) -> Spec:
    """Return the spec at `path` (a file, or a folder that holds a `repro.yml`), with the command
    line's settings laid over it.

    `overrides` are `key=value` as `--set` takes them; `seed` and `steps` are `--seed` and
    `--steps`. Raises `SpecError` with all problems.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        raw = _bytes(file)
    except Refused as refused:
        raise SpecError(str(file), [refused.problem], remedy=refused.remedy) from None
    return load_spec_bytes(
        raw,
        str(file),
        Path(os.path.abspath(file)),
        overrides,
        seed=seed,
        steps=steps,
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
    """Return a spec that stands elsewhere, in another commit say, as if it stood at `path`;
    `source` names it in mistakes. As `load_spec`."""
    try:
        root = compose(raw)
        if not isinstance(root, yaml.MappingNode):
            document = document_of(root)
            message = (
                f"found {quoted(document.data)} at the top level, wanted keys: `version: 1` and "
                "`train: {run: …}`"
            )
            raise Refused(document.problem((), message), remedy=_START_ONE)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    unset = _lay_over(root, overrides, seed, steps)
    document = document_of(root)
    document.problems += unset
    if problems := problems_in(document):
        raise SpecError(source, problems)
    spec = _spec(path, document)
    checkout = os.path.realpath(checkout_of(path))
    start = os.path.join(os.path.realpath(path.parent), spec.train.working_directory)
    if not Path(os.path.normpath(start)).is_relative_to(checkout):
        message = (
            f"found {quoted(spec.train.working_directory)}, which leads out of the checkout, "
            "wanted a folder inside it"
        )
        problem = document.problem(("train", "working-directory"), message)
        raise SpecError(source, [problem])
    return spec


def key_lines(path: Path) -> Mapping[KeyPath, int]:
    """Return the line of each key and value of the file at `path`, a spec that loads; nothing if it
    cannot be read."""
    try:
        document = document_of(compose(_bytes(path)))
    except Refused:
        return {}
    nodes = {**document.values, **document.keys}
    return {key: node.start_mark.line + 1 for key, node in nodes.items()}


def _bytes(file: Path) -> bytes:
    """Return the file's start. Never reads more than a spec may be, nor from what is not a file (a
    pipe would hang, a device would not end)."""
    remedy = _START_ONE
    try:
        why = leads_out(file, checkout_of(file))
        if not why:
            return read_start(file, MAX_BYTES + 1)
        message, remedy = f"a link leads to a file that {why}: it is not read", _LINKED
    except FileNotFoundError:
        message = "there is no such file"
    except NotRegular:
        message = "this is not a regular file, wanted a YAML file"
    except (OSError, ValueError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise Refused(Problem(None, None, "", message), remedy=remedy)


def checkout_of(file: Path) -> Path:
    """Return the checkout that a spec belongs to, by the path that names it, for the file may be a
    link: the nearest folder above with a `.git`; else the folder that the file lies in."""
    folder = Path(os.path.abspath(file)).parent
    # the second: a path that leads into the checkout through a link above it
    above = [folder, *folder.parents, *Path(os.path.realpath(folder), "-").parents]
    return next((place for place in above if os.path.lexists(place / ".git")), folder)


def _spec(path: Path, document: Document) -> Spec:
    """Decode a document without a mistake. A key that is left out keeps the dataclass's default."""
    keys = _fields(document.data)
    train, diagnosis = keys["train"], keys.get("diagnosis")
    for section in (train, diagnosis or {}):
        if "timeout" in section:
            section["timeout"] = seconds(section["timeout"])
    if diagnosis is False:
        keys["diagnosis"] = None
    train["env"] = {name: document.text(("train", "env", name)) for name in train.get("env", ())}
    random_state = keys.get("random_state", {})
    determinism = keys.get("determinism", {})
    if "seed" in random_state:
        random_state["seeds"] = [random_state["seed"]]
    if determinism.get("compare") != "bitwise":
        determinism["tolerance"] = determinism.get("compare")
    vary = keys.setdefault("robustness", {}).get("vary", True)
    varied = VARIED if vary is True else vary or ()
    # which is part of the recipe if the spec sets it
    left_out = "hash-seed" if "PYTHONHASHSEED" in train["env"] else None
    keys["robustness"]["vary"] = [name for name in varied if name != left_out]
    for item in keys.get("data", ()):
        if "sha256" in item:
            item["sha256"] = item["sha256"].lower()
    return msgspec.convert({**keys, "path": path}, Spec)


def _fields(value: Any) -> Any:
    """Return a copy with keys as the dataclasses spell them, but for ids of checks; JSON Schema
    takes 50.0 for a whole number, the dataclasses hold ints."""
    if isinstance(value, dict):
        return {
            key if "/" in key else key.replace("-", "_"): _fields(child)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_fields(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lay_over(
    root: yaml.MappingNode,
    settings: Sequence[str],
    seed: int | None,
    steps: int | None,
) -> list[Problem]:
    """Put every `key=value` of `settings` into the spec, in order, then `--seed` (in place of
    `seeds`) and `--steps`. Returns the problems of those that cannot be."""
    options = [(f"--set {setting}", setting) for setting in settings]
    if seed is not None:
        options.append((f"--seed {seed}", f"random-state.seed={seed}"))
        section = _child(root, "random-state")
        if isinstance(section, yaml.MappingNode):
            section.value = [row for row in section.value if row[0].value != "seeds"]
    if steps is not None:
        options.append((f"--steps {steps}", f"train.steps={steps}"))
    problems = []
    for origin, setting in options:
        try:
            _set(root, setting, origin)
        except Refused as refused:
            problems.append(refused.problem)
    return problems


def _set(root: yaml.MappingNode, setting: str, origin: str) -> None:
    """Put a value where the setting says; mappings on the way are made if there are none."""
    name, equals, text = setting.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or "" in path or len(setting) > MAX_VALUE or len(path) > MAX_DEPTH:
        message = "wanted `key=value`, such as `--set train.steps=10`"
        raise Refused(Problem(None, None, "", message, origin))
    value = compose(text.encode("utf-8", "surrogatepass"), origin)
    section = root
    for depth, part in enumerate(path[:-1], 1):
        child = _child(section, part)
        is_null = isinstance(child, yaml.ScalarNode) and scalar(child.value) is None
        if child is None or is_null:
            child = yaml.MappingNode("", [], value.start_mark)
            _put(section, part, child)
        if not isinstance(child, yaml.MappingNode):
            message = f"`{dotted(path[:depth])}` is not a mapping, set it as a whole"
            raise Refused(Problem(None, None, "", message, origin))
        section = child
    _put(section, path[-1], value)


def _child(section: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in section.value if key.value == name), None)


def _put(section: yaml.MappingNode, name: str, value: yaml.Node) -> None:
    rows = section.value
    names = [key.value for key, _ in rows]
    place = names.index(name) if name in names else len(rows)
    key = yaml.ScalarNode("", name, value.start_mark)
    rows[place : place + 1] = [(key, value)]
