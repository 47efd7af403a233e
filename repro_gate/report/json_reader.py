"""The reader of a foreign report.json: limits before the schema, and every problem in our words.
 A report that is read is
untrusted: no value of it is repeated in full, and nothing but ReportError inputs.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from repro_gate.errors import GateError
from repro_gate.escape import for_terminal
from repro_gate.report.json_values import MAX_BYTES, MAX_DEPTH

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_PROBLEMS = 5


class ReportError(GateError):
    """A report.json that cannot be read or does not follow its schema: exit code 2."""

    def __init__(self, message: str, *, remedy: str = "", reason_id: str = "report/invalid") -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)


def schema_text() -> str:
    """The published JSON Schema (2020-12) of report.json, as it is shipped."""
    return resources.files("repro_gate.report").joinpath("schema.json").read_text(encoding="utf-8")


def validate(document: object) -> None:
    """Validate a parsed document. Raises ReportError with the JSON pointer of each problem, at most five."""
    from jsonschema import Draft202012Validator

    errors = list(islice(Draft202012Validator(json.loads(schema_text())).iter_errors(document), _PROBLEMS))
    if errors:
        lines = sorted(f"{_pointer(error.absolute_path)}: {_problem(error)}" for error in errors)
        raise ReportError(
            "not a report of this version: " + "\n  ".join(lines), remedy="`repro-gate schema --report` prints what is expected"
        )


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read an untrusted report.json: as `read_json`, and valid by the schema. Raises ReportError, naming the file and what is wrong."""
    document = read_json(path)
    try:
        validate(document)
    except ReportError as error:
        raise ReportError(f"{for_terminal(os.fspath(path), 200)}: {error.message}", remedy=error.remedy) from None
    assert isinstance(document, dict)  # the schema says so
    return document


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read untrusted JSON: at most 16 MiB and 64 levels, UTF-8, no duplicate key, no NaN or infinity.

    Raises ReportError, which names the file and what is wrong with it.
    """
    name = for_terminal(os.fspath(path), 200)
    try:
        document = json.loads(_read(path, name), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
        _check_depth(document)
    except ReportError as error:
        raise ReportError(f"{name}: {error.message}", remedy=error.remedy) from None
    except RecursionError:
        raise ReportError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{name}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # JSONDecodeError, and an integer of more digits than Python reads
        raise ReportError(f"{name}: not JSON: {for_terminal(str(error), 200)}") from None
    return document


def _read(path: str | os.PathLike[str], name: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a named pipe must not hang the reader
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ReportError("not a regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "unknown error"
        raise ReportError(f"cannot be read: {reason}", remedy=f"check that {name} is there and readable") from None
    if len(data) > MAX_BYTES:
        raise ReportError(f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data.decode("utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ReportError(f"the key {_quoted(twice)} stands twice in one object")
    return found


def _refuse_constant(token: str) -> NoReturn:
    raise ReportError(f"{token} is not JSON", remedy="a figure that does not exist is null")


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ReportError(f"the number {_quoted(token)} is too large")
    return value


def _check_depth(document: object) -> None:
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ReportError(f"nested deeper than {MAX_DEPTH} levels")
        level = [child for item in level for child in _children(item)]


def _children(item: object) -> Iterator[object]:
    values: Iterable[object] = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return (child for child in values if isinstance(child, dict | list))


def _pointer(path: Iterable[str | int]) -> str:
    """RFC 6901; the document itself is `/` here, since an empty text reads as a mistake."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return for_terminal("/" + "/".join(steps), 200)


def _problem(error: ValidationError) -> str:
    """What is wrong, in our words: jsonschema's own message repeats the whole untrusted value."""
    expected: Any = error.validator_value
    found = _quoted(error.instance)
    instance: Any = error.instance
    if error.validator == "required":
        missing = next((name for name in expected if name not in instance), "")
        return f"`{missing}` is missing"
    if error.validator == "type":
        return f"expected {' or '.join([expected] if isinstance(expected, str) else expected)}, found {found}"
    if error.validator == "enum":
        return f"expected one of {', '.join(json.dumps(item) for item in expected)}, found {found}"
    if error.validator == "const":
        return f"expected {json.dumps(expected)}, found {found}"
    return f"{found} breaks `{error.validator}: {for_terminal(json.dumps(expected), 80)}`"


def _quoted(value: object) -> str:
    """A short picture of an untrusted value."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "a very large integer"
    return for_terminal(json.dumps(value), 60)
