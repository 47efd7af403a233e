"""`repro.yml` to `Spec`: read the file, lay the command line over it, validate it, decode it. All
mistakes of a file are raised together, as one `SpecError`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from repro_gate.files import Unreadable, leads_out, read_whole
from repro_gate.spec.document import (
    MAX_BYTES,
    MAX_DEPTH,
    Document,
    compose,
    document_of,
    problem_at,
)
from repro_gate.spec.errors import KeyPath, Problem, Refused, SpecError, dotted
from repro_gate.spec.model import VARIED, Spec
from repro_gate.spec.schema import beyond_the_schema, problems_in, quoted, seconds

FILE_NAME = "repro.yml"
MAX_VALUE = 1 << 16  # characters of one option

_CODE = (".py", ".ipynb", ".sh")
_LINKED = (
    "let the link lead to a file of the checkout, or name the spec by its own path"
)
_START_ONE = (
    "write one with `repro-gate init`, or name the "
    "file: `repro-gate run path/to/repro.yml`"
)


def load_spec(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    steps: int | None = None,
    committed: tuple[bytes, str] | None = None,
) -> Spec:
    """Return the spec at `path` (a file, or a folder that holds a `repro.yml`), with the command
    line's settings laid over it.

    `overrides` are `key=value` as `--set` takes them; `seed` and `steps` are `--seed` and
    `--steps`. `committed` is what stands at `path` in another commit: its bytes, and how mistakes
    name it. Raise `SpecError` with all problems.
    """
    file = path / FILE_NAME if path.is_dir() else path
    raw, source = committed or (None, str(file))
    try:
        root = compose(_bytes(file) if raw is None else raw)
        if not isinstance(root, yaml.MappingNode):
            message = (
                f"found {quoted(document_of(root).data)} at the top level, wanted keys: "
                "`version: 1` and `train: {run: …}`"
            )
            raise Refused(problem_at(root.start_mark, (), message), remedy=_START_ONE)
    except Refused as refused:
        raise SpecError(source, [refused.problem], remedy=refused.remedy) from None
    problems = _lay_over(root, overrides, seed, steps)
    document = document_of(root)
    document.problems += problems
    folder = Path(os.path.abspath(file)).parent
    if problems := problems_in(document) or beyond_the_schema(
        document, folder, checkout_of(file)
    ):
        raise SpecError(source, problems)
    return _spec(folder / file.name, document)


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
    """Return what the file holds. Never read more than a spec may be, nor from what is not a file
    (a pipe would hang, a device would not end)."""
    remedy = _START_ONE
    if file.suffix in _CODE:
        message = (
            "is a script, no spec: a spec is YAML, and its `train.run` names the script"
        )
        remedy = f"write one with `repro-gate init --script {shlex.quote(str(file))}`, and run that"
        raise Refused(Problem("", message), remedy=remedy)
    try:
        why = leads_out(file, checkout_of(file))
        if not why:
            return read_whole(file, MAX_BYTES)
        message = f"a link leads to a file that {why}: it is not read"
        remedy = _LINKED
    except (Unreadable, ValueError) as error:  # ValueError: a path that can be none
        message = str(error)
    raise Refused(Problem("", message), remedy=remedy)


def checkout_of(file: Path) -> Path:
    """Return the checkout that a spec belongs to, by the path that names it, for the file may be a
    link: the nearest folder above with a `.git`; else the folder that the file lies in."""
    folder = Path(os.path.abspath(file)).parent
    # the second: a path that leads into the checkout through a link above it
    above = [folder, *folder.parents, *Path(os.path.realpath(folder), "-").parents]
    return next((place for place in above if os.path.lexists(place / ".git")), folder)


def _spec(path: Path, document: Document) -> Spec:
    """Decode a document without a mistake. A key that is left out keeps the dataclass's default."""
    keys = _underscored(document.data)
    train = keys["train"]
    for bounds in (train, keys.get("diagnosis") or {}):
        if "timeout" in bounds:
            bounds["timeout"] = seconds(bounds["timeout"])
    if keys.get("diagnosis") is False:
        keys["diagnosis"] = None
    train["env"] = {
        name: document.text(("train", "env", name)) for name in train.get("env", ())
    }
    random_state = keys.get("random_state", {})
    if "seed" in random_state:
        random_state["seeds"] = [random_state["seed"]]
    determinism = keys.get("determinism", {})
    if determinism.get("compare") != "bitwise":
        determinism["tolerance"] = determinism.get("compare")
    robustness = keys.setdefault("robustness", {})
    vary = robustness.get("vary", True)
    varied = VARIED if vary is True else vary or ()
    # which is part of the recipe if the spec sets it
    left_out = "hash-seed" if "PYTHONHASHSEED" in train["env"] else None
    robustness["vary"] = [name for name in varied if name != left_out]
    effect = keys.get("effect", {})
    if isinstance(seeds := effect.get("seeds"), dict):
        most = seeds.get("at_most")
        effect |= {"seeds": seeds.get("at_least", min(5, most or 5)), "at_most": most}
    # names of metrics stay as they are
    effect |= {"smallest": document.data.get("effect", {}).get("smallest", {})}
    baseline = keys.get("baseline", {})
    baseline["largest"] = baseline.get("pass", "none")
    for item in keys.get("data", ()):
        if "sha256" in item:
            item["sha256"] = item["sha256"].lower()
    # not strict: JSON Schema takes 50.0 for a whole number
    return msgspec.convert({**keys, "path": path}, Spec, strict=False)


def _underscored(keys: dict[str, Any]) -> dict[str, Any]:
    """Return keys with the names of fields, those of sections too. The names of checks, which have
    a slash, stay."""
    return {
        name if "/" in name else name.replace("-", "_"): _underscored(value)
        if isinstance(value, dict)
        else value
        for name, value in keys.items()
    }


def _lay_over(
    root: yaml.MappingNode,
    settings: Sequence[str],
    seed: int | None,
    steps: int | None,
) -> list[Problem]:
    """Put every `key=value` of `settings` into the spec, in order, then `--seed` (in place of
    `seeds`) and `--steps`. Return the problems of those that cannot be."""
    options = [(f"--set {setting}", setting) for setting in settings]
    if seed is not None:
        options.append((f"--seed {seed}", f"random-state={{seed: {seed}}}"))
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
        raise Refused(Problem("", message, origin=origin))
    value = compose(text.encode("utf-8", "surrogatepass"), origin)
    section: Any = root
    for depth, part in enumerate(path, 1):
        if not isinstance(section, yaml.MappingNode):
            above = dotted(path[: depth - 1])
            message = f"`{above}` is not a mapping, set it as a whole"
            raise Refused(Problem("", message, origin=origin))
        rows = section.value
        names = [key.value for key, _ in rows]
        place = names.index(part) if part in names else len(rows)
        section = value
        if depth < len(path):
            section = rows[place][1] if part in names else None
            if section is None or document_of(section).data is None:
                section = yaml.MappingNode("", [], value.start_mark)
        key = yaml.ScalarNode("", part, value.start_mark)
        rows[place : place + 1] = [(key, section)]
