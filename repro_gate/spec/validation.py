"""The document compared with the schema, and the few rules that a schema cannot say: each mistake
as a sentence that names the value that stands there and what would be right. jsonschema is imported
on first use, so that commands without a spec do not pay for it."""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from repro_gate.spec.document import Document, Place
from repro_gate.spec.errors import KeyPath, Problem, dotted, escaped, shortened
from repro_gate.spec.schema import Schema, every_key, mapping_shape, property_at, schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_PROBLEMS = 500
MAX_SECONDS = 35 * 24 * 3600.0  # as the schema says for a timeout that is a number

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
CLOSE_VALUE = 0.7  # `gpu` is not a slip of the pen for `cpu` (0.67)
CLOSE_KEY = 0.6
LISTED = 20  # of more values than that, the sentence gives the title instead of all of them


def problems_in(document: Document) -> list[Problem]:
    """All problems of the document, one for each key, in the order of the file; those of
    command-line options come last."""
    unknown_version = _unknown_version(document)
    if unknown_version:
        return [*document.problems, unknown_version]
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


def _unknown_version(document: Document) -> Problem | None:
    """A file of another version is not compared with this schema: all that followed would be
    noise."""
    version = document.data.get("version", 1) if isinstance(document.data, dict) else 1
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version == 1:
        return None
    message = (
        f"found {shown(version)}, this repro-gate reads version 1: write `version: 1`, or install "
        "the repro-gate that the file is for"
    )
    return value_place(document, ("version",)).problem(("version",), message)


def _beyond_the_schema(document: Document) -> Iterator[Problem]:
    data = document.data
    for section in ("train", "diagnosis"):
        timeout = (data.get(section) or {}).get("timeout", 0)
        if seconds(timeout) > MAX_SECONDS:
            path = (section, "timeout")
            yield value_place(document, path).problem(
                path, f"found {shown(timeout)}, wanted a time of at most 35 days, such as `20m`"
            )
    yield from _twice(document, ("data",), "path", data.get("data", ()))
    yield from _twice(
        document, ("determinism", "allow"), "flag", data.get("determinism", {}).get("allow", ())
    )


def _twice(
    document: Document, base: tuple[str, ...], name: str, items: list[dict[str, str]]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = posixpath.normpath(item[name])
        if value in seen:
            path: KeyPath = (*base, index, name)
            yield value_place(document, path).problem(
                path, f"{shown(item[name])} stands twice, keep one"
            )
        seen.add(value)


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def unique(
        _validator: Any, wanted: bool, found: object, _schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        """In linear time; only lists of seeds and names carry it, and what is neither is said by
        `items`."""
        seen = set[float | str]()
        for index, item in enumerate(found) if wanted and isinstance(found, list) else ():
            if isinstance(item, (int, float, str)):
                if item in seen:
                    yield ValidationError("unique", path=[index])
                seen.add(item)

    # bare in the stubs
    exact = extend(Draft202012Validator, {"uniqueItems": unique})  # type: ignore[no-untyped-call]
    validator: Validator = exact(schema(), format_checker=FormatChecker(formats=["date"]))
    return validator


def problems_of(
    error: ValidationError, document: Document, base: KeyPath = ()
) -> Iterator[Problem]:
    """The problems that one error of the validator stands for, each at its own place."""
    path: KeyPath = (*base, *error.path)
    rule = error.validator
    found: Any = error.instance
    value: Any = error.validator_value
    said: Schema = error.schema if isinstance(error.schema, dict) else {}
    if rule in ("oneOf", "not") and said.get("type") == "object" and not isinstance(found, dict):
        # a rule about the keys of a mapping; that this is not a mapping at all is said by `type`
        return
    if rule == "additionalProperties":
        for key in _extra(found, said):
            at = (*path, key)
            yield document.keys[at].problem(at, _unknown(path, key, said))
    elif rule == "required":
        for key in (key for key in value if key not in found):
            yield _key_place(document, path).problem(
                (*path, key), f"is missing, add {_example((*path, key), key)}"
            )
    elif rule == "oneOf" and "required" in value[0]:
        names = [name for branch in value for name in branch["required"]]
        choices = (
            f"needs {_listed([f'`{name}`' for name in names], 'or')}, such as {_example(path)}"
        )
        is_both = any(name in found for name in names)
        yield (
            _exclusive(path, names, document)
            if is_both
            else _key_place(document, path).problem(path, choices)
        )
    elif rule == "not" and not value:
        yield _key_place(document, path).problem(path, _forbidden(error))
    elif rule == "not":
        yield _exclusive(path, [*value["required"]], document)
    elif rule == "uniqueItems":
        yield value_place(document, path).problem(
            path, f"{shown(found[path[-1]])} stands twice, keep one"
        )
    elif (
        rule in ("oneOf", "anyOf")
        and isinstance(found, dict | list)
        and (inner := _branch_of_its_kind(error))
    ):
        for part in inner:
            yield from problems_of(part, document, path)
    else:
        yield value_place(document, path).problem(path, _wrong_value(found, said, path, document))


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


def _key_place(document: Document, path: KeyPath) -> Place:
    return document.keys.get(path) or value_place(document, path)


def _wrong_value(found: Any, said: Schema, path: KeyPath, document: Document) -> str:
    sentence = f"found {shown(found)}" if found is not None else "has no value"
    names = {name.lower(): name for name in said.get("enum", ())}
    close = (
        difflib.get_close_matches(shortened(found).lower(), names, 1, CLOSE_VALUE)
        if isinstance(found, str)
        else []
    )
    wanted = f"did you mean `{names[close[0]]}`?" if close else f"wanted {_wanted(said, found)}"
    example = f", such as {_example(path)}" if said.get("type") in ("array", "object") else ""
    return f"{sentence}, {wanted}{example}{_hint(found, said, document.literals.get(path, ''))}"


def _wanted(said: Schema, found: object) -> str:
    """What would be right, from the subschema that refused the value."""
    kind, most = said.get("type"), said.get("maximum")
    if "const" in said:
        return f"the number {said['const']}"
    if "enum" in said and len(said["enum"]) <= LISTED:
        return _listed([f"`{name}`" for name in said["enum"]], "or")
    if kind in ("integer", "number"):
        is_high = isinstance(found, (int, float)) and most is not None and found > most
        limit = f"at most {most}" if is_high else f"{said['minimum']} or more"
        return f"a {'whole ' if kind == 'integer' else ''}number, {limit}"
    if kind == "boolean":
        return "`true` or `false`"
    if kind == "array":
        return (
            "a list with at least one entry" if said.get("minItems") and found == [] else "a list"
        )
    if kind == "object":
        keys = [f"`{key}`" for key in said.get("required", ())]
        return f"a mapping with {_listed(keys, 'and')}" if keys else "a mapping"
    return str(said["title"]) if isinstance(kind, str) or kind is None else "text or a number"


def _hint(found: object, said: Schema, literal: str) -> str:
    """One more clause, where the value shows which slip was made."""
    kinds = said.get("type", ())
    if "string" in kinds and (
        isinstance(found, (bool, int, float)) or (found is None and "number" in kinds)
    ):
        return f', put it in quotes: "{shortened(escaped(literal))}"'
    if not isinstance(found, str):
        return ""
    if kinds in ("integer", "number"):
        if re.fullmatch(r"[-+]?0[0-9]+", found):
            return (
                " (a leading zero has two readings in YAML, write "
                f"`{shortened(found.lstrip('+-0') or '0')}`)"
            )
        if re.fullmatch(r"[-+]?[0-9][0-9_]*(\.[0-9_]+)?", found):
            return f", write it plain: `{shortened(found.replace('_', ''))}`"
    return (
        ", leave out the `sha256:`"
        if said.get("title", "").startswith("64 hex") and found.startswith("sha256:")
        else ""
    )


def _unknown(path: KeyPath, key: str, said: Schema) -> str:
    if "patternProperties" in said:
        return (
            "no name for an environment variable, use letters, digits and `_`, and no digit in "
            "front"
        )
    allowed = list(said["properties"])
    if not allowed:
        return f"unknown key, `{dotted(path)}` takes no keys"
    plain = shortened(key).lower().replace("_", "-")
    paths = [path[:-1] for path, _ in every_key() if path[-1] == plain and "[]" not in path]
    homes = ["at the top level" if not home else f"under `{'.'.join(home)}`" for home in paths]
    close = difflib.get_close_matches(plain, allowed, 1, CLOSE_KEY)
    if close and not (homes and close[0] != plain):
        return f"unknown key, did you mean `{close[0]}`?"
    if homes:
        return f"unknown key here, `{plain}` belongs {_listed(homes, 'or')}"
    return f"unknown key, allowed here: {', '.join(allowed)}"


def _extra(found: dict[str, Any], said: Schema) -> list[str]:
    patterns = [re.compile(pattern) for pattern in said.get("patternProperties", ())]
    return [
        key
        for key in found
        if key not in said.get("properties", ())
        and not any(pattern.search(key) for pattern in patterns)
    ]


def _exclusive(path: KeyPath, names: list[str], document: Document) -> Problem:
    at = [(*path, name) for name in names]
    places = [document.keys[key] for key in at]
    place = max(
        places, key=lambda place: (place.origin is not None, place.line or 0, place.column or 0)
    )
    return place.problem(
        path, f"has both {_listed([f'`{name}`' for name in names], 'and')}, keep one of them"
    )


def _forbidden(error: ValidationError) -> str:
    """For a key that an `if`/`then` of its section rules out: name the key that does."""
    here: Any = schema()
    for part in list(error.absolute_schema_path):
        if part == "then":
            break
        here = here[part]
    beside = _listed(
        [
            f"`{key}: {json.dumps(said['const']).strip(chr(34))}`"
            for key, said in here["if"]["properties"].items()
        ],
        "and",
    )
    return f"has no meaning beside {beside}, leave one of them out"


def _branch_of_its_kind(error: ValidationError) -> list[ValidationError]:
    """Return, of a choice that failed, the errors of the branch that is a mapping, or a list, as
    what was found is."""
    branches: Any = error.validator_value
    keyword = "items" if isinstance(error.instance, list) else "properties"
    index = next(
        (index for index, branch in enumerate(branches) if keyword in mapping_shape(branch)), None
    )
    return [
        part for part in error.context or () if index is not None and part.schema_path[0] == index
    ]


def _example(path: KeyPath, key: str = "") -> str:
    """A piece of YAML that would be right: the first example of the key, or of the list that holds
    the entry."""
    said, name = (
        property_at(path) or {},
        key or next((str(part) for part in reversed(path) if isinstance(part, str)), ""),
    )
    examples = said.get("examples", ["…"])
    if "examples" not in said and path and isinstance(path[-1], int):
        return f"`{_flow((property_at(path[:-1]) or {}).get('examples', [[{}]])[0][0])}`"
    return f"`{name}: {_flow(examples[0])}`" if name else f"`{_flow(examples[0])}`"


def _flow(value: Any) -> str:
    """A value as YAML writes it on one line. The schema's examples need quotes only inside braces,
    where they always get them."""
    if isinstance(value, float):
        return f"{value:.1e}".replace("e-0", "e-")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _listed(names: Sequence[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
