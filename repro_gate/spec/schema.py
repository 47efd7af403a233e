"""The JSON Schema of `repro.yml`, and what is wrong with a document by it and by the few rules that
a schema cannot say: each mistake as a sentence that names the value that stands there and what
would be right. jsonschema is imported on first use: commands without a spec do not pay for it."""

from __future__ import annotations

import difflib
import json
import math
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from repro_gate.spec.document import Document
from repro_gate.spec.errors import KeyPath, Problem, shortened

Schema = Mapping[str, Any]

MAX_PROBLEMS = 500
CLOSE = 0.7  # `gpu` is not a slip of the pen for `cpu` (0.67)
# of more values than that, the sentence gives the title instead of all of them
LISTED = 20

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# lists in which nothing may stand twice, and by which key of their entries
_UNIQUE: dict[KeyPath, str] = {
    ("data",): "path",
    ("determinism", "allow"): "flag",
    ("equivalent",): "name",
    ("random-state", "seeds"): "",
    ("robustness", "vary"): "",
}
_KINDS = {"boolean": "`true` or `false`", "array": "a list", "object": "a mapping"}


@cache
def schema() -> Schema:
    """Return the schema, parsed. `$`, the end of a text, is Python's `\\Z`: its `$` also matches
    before a line break. Callers do not change it."""
    text = files("repro_gate.spec").joinpath("schema.json").read_text(encoding="utf-8")
    parsed: Schema = json.loads(re.sub(r'\$(?=[")])', r"\\\\Z", text))
    return parsed


def problems_in(document: Document) -> list[Problem]:
    """Return all problems of the document, one for each key, in the order of the file; those of
    command-line options come last."""
    errors = _validator().iter_errors(document.data)
    invalid = (problem for error in errors for problem in _problems_of(error, document))
    first_of_key: dict[tuple[str, str], Problem] = {}
    for problem in (*document.problems, *islice(invalid, MAX_PROBLEMS)):
        first_of_key.setdefault((problem.key, problem.origin), problem)
    return sorted(
        first_of_key.values(),
        key=lambda item: (item.origin != "", item.line or 0, item.column or 0),
    )


def seconds(timeout: str | float) -> float:
    """Return `90s`, `20m`, `1.5h` or a number as seconds."""
    if isinstance(timeout, str):
        return float(timeout[:-1]) * _UNIT_SECONDS[timeout[-1]]
    return timeout


def beyond_the_schema(
    document: Document, folder: Path, checkout: Path
) -> list[Problem]:
    """Return what is wrong with a document that the schema allows, in a spec that lies in
    `folder`."""
    problems = []
    for path, name in _UNIQUE.items():
        earlier = set[object]()
        items = _value_at(document, path)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            value = posixpath.normpath(item[name]) if name else item
            if value in earlier:
                at = (*path, index, *filter(None, [name]))
                message = f"{quoted(value)} stands twice, keep one"
                problems.append(document.problem(at, message))
            earlier.add(value)
    problems += _resume_problems(document)
    path = ("train", "working-directory")
    directory = _value_at(document, path) or "."
    start = os.path.normpath(os.path.join(os.path.realpath(folder), directory))
    if not Path(start).is_relative_to(os.path.realpath(checkout)):
        message = (
            f"found {quoted(directory)}, which leads out of the "
            "checkout, wanted a folder inside it"
        )
        problems.append(document.problem(path, message))
    return problems


def _resume_problems(document: Document) -> list[Problem]:
    """Return why training cannot be stopped and compared as `resume` says."""
    after = _value_at(document, ("resume", "after"))
    if not after:
        return []
    steps = _value_at(document, ("train", "steps")) or math.inf
    every = _value_at(document, ("capture", "every")) or 1
    compare = _value_at(document, ("determinism", "compare")) or "bitwise"
    wrong: dict[KeyPath, str] = {}
    if after >= steps:
        wrong["resume", "after"] = f"fewer than train.steps, {steps:g}"
    if every != 1:
        wrong["capture", "every"] = "1: `resume` compares every step"
    if compare != "bitwise":
        wrong["determinism", "compare"] = "`bitwise`: `resume` compares bit by bit"
    return [
        document.problem(
            path, f"found {quoted(_value_at(document, path))}, wanted {right}"
        )
        for path, right in wrong.items()
    ]


def _value_at(document: Document, path: KeyPath) -> Any:
    """Return what stands under a section, or under a key of one; None if nothing does."""
    value = document.data.get(path[0])
    if len(path) > 1 and isinstance(value, dict):
        value = value.get(path[1])
    return value


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend

    # in linear time by `beyond_the_schema`; bare in the stubs
    others: Any = extend(Draft202012Validator, {"uniqueItems": lambda *_: ()})  # type: ignore[no-untyped-call]
    return others(schema(), format_checker=FormatChecker(formats=["date"]))


def _problems_of(error: Any, document: Document) -> Iterator[Problem]:
    """Yield the problems that one ValidationError stands for, each at its own place."""
    path = tuple(error.absolute_path)
    value = error.instance
    rules = error.schema
    rule = error.validator
    argument = error.validator_value
    properties: Schema = rules.get("properties", {})
    wrong: dict[str, str] = {}
    if rule == "additionalProperties":
        names = "|".join(rules.get("patternProperties", ["(?!)"]))
        for key in value:
            if key not in properties and not re.search(names, key):
                wrong[key] = _unknown(key, rules)
    elif rule == "required":
        for key in argument:
            example = _example(properties.get(key, {}))
            if key not in value:
                wrong[key] = f"is missing, add `{key}: {example}`"
    for key, message in wrong.items():
        yield document.problem((*path, key), message, at_key=True)
    if wrong:
        return
    # of a choice that failed: the errors of the branches that take a value of its kind
    inner = [
        part
        for part in error.context or ()
        if part.path or part.validator not in ("type", "const", "enum")
    ]
    if rule in ("oneOf", "not") and rules.get("type") == "object":
        # that it is no mapping at all is a problem of `type`
        if isinstance(value, dict):
            branches = [argument] if rule == "not" else argument
            keys = [name for branch in branches for name in branch["required"]]
            choices = " and ".join(f"`{key}`" for key in keys)
            message = f"wanted one of {choices}, and not both"
            yield document.problem(path, message, at_key=True)
    elif rule == "not":
        message = (
            "has no meaning beside another key of its section, leave one of them out"
        )
        yield document.problem(path, message, at_key=True)
    elif isinstance(value, dict | list) and inner:
        for part in inner:
            yield from _problems_of(part, document)
    else:
        yield document.problem(path, _wrong_value(value, rules))


def quoted(value: object) -> str:
    """Return a value as a message names it: text in quotes and cut short, a container by its
    kind."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, str):
        return f'"{shortened(value)}"'
    return "no value" if value is None else shortened(json.dumps(value))


def _wrong_value(value: Any, rules: Schema) -> str:
    sentence = "has no value" if value is None else f"found {quoted(value)}"
    names = rules.get("enum", [rules["const"]] if "const" in rules else [])
    if close := _close(str(value), map(str, names)):
        return f"{sentence}, did you mean `{close[0]}`?"
    kind = rules.get("type", ())
    right = str(rules.get("title", "another value"))
    if 0 < len(names) <= LISTED:
        right = " or ".join(f"`{name}`" for name in names)
    elif "minimum" in rules:
        whole = "whole " if kind == "integer" else ""
        right = f"a {whole}number, {rules['minimum']} or more"
        if "maximum" in rules:
            right += f", {rules['maximum']} at most"
    elif str(kind) in _KINDS:
        right = f"{_KINDS[str(kind)]}, such as `{_example(rules)}`"
    if "string" in kind and not isinstance(value, str | list | dict):
        right += ", in quotes"
    return f"{sentence}, wanted {right}"


def _unknown(key: str, rules: Schema) -> str:
    if "patternProperties" in rules:
        return "no name for an environment variable"
    name = shortened(key).lower().replace("_", "-")
    if close := _close(name, rules["properties"]):
        return f"unknown key, did you mean `{close[0]}`?"
    for section, part in schema()["properties"].items():
        if name in part.get("properties", {}):
            return f"unknown key here, `{name}` belongs under `{section}`"
    return f"unknown key, allowed here: {', '.join(rules['properties']) or 'none'}"


def _close(text: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(shortened(text), list(names), 1, CLOSE)


def _example(rules: Schema) -> str:
    """Return YAML that would be right: the first example."""
    value = rules.get("examples", ["…"])[0]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
