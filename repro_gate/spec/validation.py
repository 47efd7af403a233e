"""The document compared with the schema, and the few rules that a schema cannot say. jsonschema is imported on first use, so that commands
without a spec do not pay for it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from repro_gate.spec.document import Document
from repro_gate.spec.errors import KeyPath, Problem
from repro_gate.spec.messages import problems_of, shown, value_place
from repro_gate.spec.schema import schema

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_PROBLEMS = 500
MAX_SECONDS = 35 * 24 * 3600.0  # as the schema says for a timeout that is a number

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def problems_in(document: Document) -> list[Problem]:
    """All problems of the document, one for each key, in the order of the file; those of command-line options come last."""
    unknown_version = _unknown_version(document)
    if unknown_version:
        return [*document.problems, unknown_version]
    said = (problem for error in _validator().iter_errors(document.data) for problem in problems_of(error, document))
    found = [*document.problems, *islice(said, MAX_PROBLEMS)]
    found.extend(_beyond_the_schema(document) if not found else ())
    first_of_key: dict[tuple[str, str | None], Problem] = {}
    for problem in found:
        first_of_key.setdefault((problem.key, problem.origin), problem)
    return sorted(first_of_key.values(), key=lambda problem: (problem.origin is not None, problem.line or 0, problem.column or 0))


def seconds(timeout: str | float) -> float:
    """`90s`, `20m`, `1.5h` or a number, as seconds."""
    return float(timeout) if not isinstance(timeout, str) else float(timeout[:-1]) * _UNIT_SECONDS[timeout[-1]]


def _unknown_version(document: Document) -> Problem | None:
    """A file of another version is not compared with this schema: all that followed would be noise."""
    version = document.data.get("version", 1) if isinstance(document.data, dict) else 1
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version == 1:
        return None
    message = f"found {shown(version)}, this repro-gate reads version 1: write `version: 1`, or install the repro-gate that the file is for"
    return value_place(document, ("version",)).problem(("version",), message)


def _beyond_the_schema(document: Document) -> Iterator[Problem]:
    data = document.data
    timeout = data["train"].get("timeout", 0)
    if seconds(timeout) > MAX_SECONDS:
        path = ("train", "timeout")
        yield value_place(document, path).problem(path, f"found {shown(timeout)}, wanted a time of at most 35 days, such as `20m`")
    yield from _twice(document, ("data",), "path", data.get("data", ()))
    yield from _twice(document, ("determinism", "allow"), "flag", data.get("determinism", {}).get("allow", ()))


def _twice(document: Document, base: tuple[str, ...], name: str, items: list[dict[str, str]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = posixpath.normpath(item[name])
        if value in seen:
            path: KeyPath = (*base, index, name)
            yield value_place(document, path).problem(path, f"{shown(item[name])} stands twice, keep one")
        seen.add(value)


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def pattern(_validator: Any, expression: str, found: object, _schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        """As ECMAScript has it: `$` is the end of the text, not also the place before a last line break."""
        if isinstance(found, str) and not re.search(re.sub(r"(?<!\\)\$", r"\\Z", expression), found):
            yield ValidationError("pattern")

    def unique(_validator: Any, wanted: bool, found: object, _schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        """In linear time; only seeds carry it, and what is not a number is said by `items`."""
        seen = set[float]()
        for index, item in enumerate(found) if wanted and isinstance(found, list) else ():
            if isinstance(item, (int, float)):
                if item in seen:
                    yield ValidationError("unique", path=[index])
                seen.add(item)

    exact = extend(Draft202012Validator, {"pattern": pattern, "uniqueItems": unique})  # type: ignore[no-untyped-call]  # bare in the stubs
    validator: Validator = exact(schema(), format_checker=FormatChecker(formats=["date"]))
    return validator
