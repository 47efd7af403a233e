"""The document compared with the schema, and the few rules that a schema cannot say: each mistake
as a sentence that names the value that stands there and what would be right. jsonschema is imported
on first use, so that commands without a spec do not pay for it."""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from repro_gate.spec.document import Document, Place
from repro_gate.spec.errors import KeyPath, Problem, escaped, shortened
from repro_gate.spec.schema import Schema, every_key, property_at, schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_PROBLEMS = 500
MAX_SECONDS = 35 * 24 * 3600.0  # as the schema says for a timeout that is a number

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
CLOSE = 0.7  # `gpu` is not a slip of the pen for `cpu` (0.67)
LISTED = 20  # of more values than that, the sentence gives the title instead of all of them
# lists in which nothing may stand twice, and by which key of their entries
_UNIQUE: dict[KeyPath, str] = {
    ("data",): "path",
    ("determinism", "allow"): "flag",
    ("random-state", "seeds"): "",
    ("robustness", "vary"): "",
}
_KINDS = {"boolean": "`true` or `false`", "array": "a list", "object": "a mapping"}


def problems_in(document: Document) -> list[Problem]:
    """All problems of the document, one for each key, in the order of the file; those of
    command-line options come last."""
    said = (
        problem
        for error in _validator().iter_errors(document.data)
        for problem in problems_of(error, document)
    )
    found = [*document.problems, *islice(said, MAX_PROBLEMS)]
    found.extend(_beyond_the_schema(document) if not found else ())
    first_of_key: dict[tuple[str, str | None], Problem] = {}
    for problem in found:
        first_of_key.setdefault((problem.key, problem.origin), problem)
    return sorted(
        first_of_key.values(),
        key=lambda problem: (problem.origin is not None, problem.line or 0, problem.column or 0),
    )


def seconds(timeout: str | float) -> float:
    """`90s`, `20m`, `1.5h` or a number, as seconds."""
    return (
        float(timeout)
        if not isinstance(timeout, str)
        else float(timeout[:-1]) * _UNIT_SECONDS[timeout[-1]]
    )


def _beyond_the_schema(document: Document) -> Iterator[Problem]:
    data = document.data
    for section in ("train", "diagnosis"):
        timeout = (data.get(section) or {}).get("timeout", 0)
        if seconds(timeout) > MAX_SECONDS:
            path = (section, "timeout")
            yield value_place(document, path).problem(
                path, f"found {shown(timeout)}, wanted a time of at most 35 days, such as `20m`"
            )
    for where, name in _UNIQUE.items():
        yield from _twice(document, where, name)


def _twice(document: Document, where: KeyPath, name: str) -> Iterator[Problem]:
    items, seen = document.data, set[object]()
    for part in where:
        items = items.get(part) or {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        path: KeyPath = (*where, index, name) if name else (*where, index)
        value = posixpath.normpath(item[name]) if name else item
        if value in seen:
            yield value_place(document, path).problem(
                path, f"{shown(value)} stands twice, keep one"
            )
        seen.add(value)


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend

    # `uniqueItems` is said by `_twice`, in linear time; bare in the stubs
    others = extend(Draft202012Validator, {"uniqueItems": _no_problem})  # type: ignore[no-untyped-call]
    validator: Validator = others(schema(), format_checker=FormatChecker(formats=["date"]))
    return validator


def _no_problem(*_: object) -> tuple[()]:
    return ()


def problems_of(
    error: ValidationError, document: Document, base: KeyPath = ()
) -> Iterator[Problem]:
    """The problems that one error of the validator stands for, each at its own place."""
    path: KeyPath = (*base, *error.path)
    found: Any = error.instance
    value: Any = error.validator_value
    said: Schema = error.schema if isinstance(error.schema, dict) else {}
    key_place = document.keys.get(path) or value_place(document, path)
    about_keys = error.validator in ("oneOf", "not") and said.get("type") == "object"
    if error.validator == "additionalProperties":
        patterns = [re.compile(pattern) for pattern in said.get("patternProperties", ())]
        for key in found:
            if key not in said.get("properties", ()) and not any(p.search(key) for p in patterns):
                at = (*path, key)
                yield document.keys[at].problem(at, _unknown(key, said))
    elif error.validator == "required":
        for key in (key for key in value if key not in found):
            yield key_place.problem((*path, key), f"is missing, add {_example((*path, key))}")
    elif about_keys and isinstance(found, dict):
        branches = value if isinstance(value, list) else [value]
        names = [f"`{name}`" for branch in branches for name in branch["required"]]
        yield key_place.problem(path, f"wanted one of {' and '.join(names)}, and not both")
    elif error.validator == "not" and not about_keys:
        message = "has no meaning beside another key of its section, leave one of them out"
        yield key_place.problem(path, message)
    elif inner := _of_its_kind(error):
        for part in inner:
            yield from problems_of(part, document, path)
    elif not about_keys:  # that it is no mapping at all is said by `type`
        yield value_place(document, path).problem(path, _wrong_value(found, said, path))


def value_place(document: Document, path: KeyPath) -> Place:
    """Where the value at `path` stands, or the nearest thing above it that has a place."""
    for length in range(len(path), -1, -1):
        if path[:length] in document.values:
            return document.values[path[:length]]
    return Place(1, 1)


def shown(value: object) -> str:
    """A value as a message names it: text in quotes and cut short, containers by their kind."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return f'"{shortened(escaped(value))}"'
    return (
        {True: "true", False: "false", None: "no value"}[value]
        if value is None or isinstance(value, bool)
        else shortened(str(value))
    )


def _wrong_value(found: Any, said: Schema, path: KeyPath) -> str:
    sentence = f"found {shown(found)}" if found is not None else "has no value"
    names = said.get("enum", [said["const"]] if "const" in said else [])
    close = difflib.get_close_matches(shortened(str(found)), map(str, names), 1, CLOSE)
    if close:
        return f"{sentence}, did you mean `{close[0]}`?"
    kind = said.get("type", ())
    wanted = str(said.get("title", "another value"))
    if 0 < len(names) <= LISTED:
        wanted = " or ".join(f"`{name}`" for name in names)
    elif "minimum" in said:
        most = f", {said['maximum']} at most" if "maximum" in said else ""
        wanted = f"a {'whole ' * (kind == 'integer')}number, {said['minimum']} or more{most}"
    elif isinstance(kind, str) and kind in _KINDS:
        wanted = _KINDS[kind] + (f", such as {_example(path)}" if kind != "boolean" else "")
    quotes = "string" in kind and not isinstance(found, str | list | dict)
    return f"{sentence}, wanted {wanted}{', in quotes' if quotes else ''}"


def _unknown(key: str, said: Schema) -> str:
    if "patternProperties" in said:
        return "no name for an environment variable"
    plain = shortened(key).lower().replace("_", "-")
    if close := difflib.get_close_matches(plain, said["properties"], 1, CLOSE):
        return f"unknown key, did you mean `{close[0]}`?"
    homes = [".".join(above) for (*above, name), _ in every_key() if name == plain and above]
    if homes:
        return f"unknown key here, `{plain}` belongs under `{'` or `'.join(homes)}`"
    return f"unknown key, allowed here: {', '.join(said['properties']) or 'none'}"


def _of_its_kind(error: ValidationError) -> list[ValidationError]:
    """Return, of a choice that failed, the errors of the branches that take a mapping, or a list,
    as what was found is."""
    context = error.context or () if isinstance(error.instance, dict | list) else ()
    others = {
        part.schema_path[0]
        for part in context
        if part.validator in ("type", "const", "enum") and not part.path
    }
    return [part for part in context if part.schema_path[0] not in others]


def _example(path: KeyPath) -> str:
    """A piece of YAML that would be right: the first example of the key, or of the list's entry."""
    value = (property_at(path) or {}).get("examples", ["…"])[0]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{path[-1]}: {text}`" if path and isinstance(path[-1], str) else f"`{text}`"
