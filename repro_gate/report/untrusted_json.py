"""Untrusted JSON out of a file: limits on size, depth and digits before anything looks at it, and
every problem in our words."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from repro_gate.errors import GateError
from repro_gate.escape import clip, for_terminal
from repro_gate.files import Unreadable, read_whole

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_DIGITS = 30  # of one integer: no count is longer, and every float holds it


class ReportError(GateError):
    """A report.json that cannot be read or does not follow its schema: exit code 2."""

    def __init__(
        self, message: str, *, remedy: str = "", reason_id: str = "report/invalid"
    ) -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read untrusted JSON: at most 16 MiB and 64 levels, UTF-8, no duplicate key, no NaN or
    infinity, no integer of over 30 digits.

    Raises ReportError, which names the file and what is wrong with it.
    """
    name = for_terminal(os.fspath(path), 200)
    try:
        text = read_whole(Path(path), MAX_BYTES).decode("utf-8")
        document = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
        _check_depth(document)
    except Unreadable as error:
        raise ReportError(
            f"{name}: {error}", remedy=f"check that {name} is there and readable"
        ) from None
    except ReportError as error:
        raise ReportError(f"{name}: {error.message}", remedy=error.remedy) from None
    except RecursionError:
        raise ReportError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{name}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise ReportError(f"{name}: not JSON: {for_terminal(str(error), 200)}") from None
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ReportError("a key stands twice in one object")
    return found


def _refuse_constant(token: str) -> NoReturn:
    raise ReportError(f"{token} is not JSON", remedy="a figure that does not exist is null")


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ReportError(f"the number {clip(token, 60)} is too large")
    return value


def _integer(token: str) -> int:
    if len(token.lstrip("-")) > MAX_DIGITS:
        raise ReportError(f"an integer of more than {MAX_DIGITS} digits")
    return int(token)


def _check_depth(document: object) -> None:
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ReportError(f"nested deeper than {MAX_DEPTH} levels")
        level = [child for item in level for child in _children(item)]


def _children(item: object) -> Iterator[object]:
    values: Iterable[object] = (
        item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    )
    return (child for child in values if isinstance(child, dict | list))
