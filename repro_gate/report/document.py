"""A Report as `report.json`, and a foreign `report.json` as a Report. What is written is never
larger than what the reader takes; what is read is untrusted: limits on size, depth and digits come
before anything looks at it, and it is shown, never believed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.compare.model import Amount
from repro_gate.errors import GateError
from repro_gate.escape import clip, for_encoding, for_terminal
from repro_gate.files import Unreadable, read_whole
from repro_gate.report.model import Report

_Kind = TypeVar("_Kind")
MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_DIGITS = 30  # of one integer: no count is longer, and every float holds it
_CHARACTERS = 8_192  # of one text
# (levels, characters of one text, entries of one list or mapping), the next only where the document
# would pass MAX_BYTES. No smaller than what the format itself needs: a digest has 71 characters,
# the document 21 fields, the deepest fixed field 7 levels.
_SHORTER = ((MAX_DEPTH, 1_024, 1_000), (12, 71, 100), (8, 71, 24))


class ReportError(GateError):
    """A report.json that cannot be read or does not follow its schema: exit code 2."""

    reason_id = "report/invalid"


# ---- writing


def to_json(record: object) -> Any:
    """Return a record, such as a Report, as its schema has it. A part that was not measured is
    None; NaN and infinities are the texts `nan`, `inf` and `-inf`.

    Lists keep their first entries up to the limits of the schema; the totals beside them always
    count everything."""
    return _by_type(inspect.type_info(type(record)), record, _CHARACTERS)


def render(record: object, **more: str) -> str:
    """Return the text of `report.json`, or of another record's file, with further fields."""
    return to_text({**more, **to_json(record)})


def to_text(document: Mapping[str, Any]) -> str:
    """Return a plain document as text: keys sorted, two spaces, ASCII (so that `cat` is safe), no
    NaN token, never longer than MAX_BYTES."""
    text = _written(document)
    for limits in _SHORTER:
        if len(text) > MAX_BYTES:  # ASCII: characters are bytes
            text = _written(jsonable(document, *limits))
    return text


def jsonable(
    value: object,
    levels: int = MAX_DEPTH - 1,
    characters: int = _CHARACTERS,
    entries: int | None = None,
) -> Any:
    """Return a value in JSON's own types only: tuples to lists, non-finite numbers to texts, lone
    surrogates spelled out, anything else to its text.

    Text is clipped to `characters`; what lies deeper than `levels` is `…`; of a list or a
    mapping the first `entries` are kept.
    """
    if value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**MAX_DIGITS else clip(hex(value), characters)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple):
        if levels <= 0:
            return "…"
        if isinstance(value, Mapping):
            return {
                _text(str(key), characters): jsonable(
                    item, levels - 1, characters, entries
                )
                for key, item in islice(value.items(), entries)
            }
        return [
            jsonable(item, levels - 1, characters, entries)
            for item in islice(value, entries)
        ]
    return _text(str(value), characters)


def _by_type(info: Any, value: Any, characters: int) -> Any:
    """Return `value` as the JSON of a type of the schema, texts, lists and mappings cut to the
    type's own limit."""
    while isinstance(info, inspect.Metadata | inspect.UnionType):
        if isinstance(info, inspect.Metadata):
            info = info.type
        else:
            info = next(
                item for item in info.types if not isinstance(item, inspect.NoneType)
            )
    if value is None:
        return None
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        if info.cls is ConfigHash:  # whole, so that whoever reads it can hash it again
            characters = MAX_BYTES
        return {
            item.encode_name: _by_type(item.type, getattr(value, item.name), characters)
            for item in info.fields
        }
    if isinstance(info, inspect.VarTupleType):
        return [
            _by_type(info.item_type, item, characters)
            for item in value[: info.max_length]
        ]
    if isinstance(info, inspect.TupleType):
        return [
            _by_type(kind, item, characters)
            for kind, item in zip(info.item_types, value, strict=True)
        ]
    if isinstance(info, inspect.DictType):
        rows = islice(value.items(), info.max_length)
        return {
            _text(str(key), characters): _by_type(info.value_type, item, characters)
            for key, item in rows
        }
    if isinstance(info, inspect.StrType) and info.max_length is not None:
        characters = min(characters, info.max_length)
    # no field of the schema that holds anything lies deeper than five levels
    return jsonable(value, MAX_DEPTH - 5, characters)


def _written(document: object) -> str:
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False) + "\n"


def _text(value: str, limit: int) -> str:
    """Return a text clipped before it is copied: thousands of rows may share one text of
    megabytes."""
    return clip(for_encoding(clip(value, limit), "utf-8"), limit)


# ---- reading


def load(path: str | os.PathLike[str]) -> Report:
    """Read an untrusted report.json: as `read_json`, and valid by the schema. Raises ReportError,
    naming the file and what is wrong. The config hash is carried as it is claimed
    (`baseline.config_hash.made_again` hashes it again)."""
    name = for_terminal(os.fspath(path), 200)
    return validate(read_json(path), Report, name)


def validate(document: object, kind: type[_Kind], name: str) -> _Kind:
    """Return a parsed document, or a part of one, by its type. Raises ReportError with the file's
    name and the place of the first problem."""
    try:
        return msgspec.convert(document, kind, dec_hook=_number)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        what, _, where = str(error).rpartition(" - at ")
        problem = f"{where}: {what}" if what else where
        raise ReportError(
            f"{name}: not a report of this version: {for_terminal(problem, 300)}",
            remedy="`repro-gate schema report` prints what is expected",
        ) from None


def _number(kind: type[float], value: Any) -> float:
    """Convert a value to a `model.Number`, as msgspec's hook. Raises ValueError, to which msgspec
    adds the path."""
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or value in ("nan", "inf", "-inf")
    ):
        raise ValueError("Expected a number, `nan`, `inf` or `-inf`")
    try:
        number = kind(value)
    except OverflowError:
        raise ValueError("Expected a number that a float holds") from None
    if kind is Amount and number < 0:
        raise ValueError("Expected a number >= 0")
    return number


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
            parse_constant=_finite,
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
    except ValueError as error:
        raise ReportError(
            f"{name}: not JSON: {for_terminal(str(error), 200)}"
        ) from None
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ReportError("a key stands twice in one object")
    return keys


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ReportError(
            f"the number {clip(token, 60)} is not finite",
            remedy="a figure that does not exist is null",
        )
    return value


def _integer(token: str) -> int:
    if len(token.lstrip("-")) > MAX_DIGITS:
        raise ReportError(f"an integer of more than {MAX_DIGITS} digits")
    return int(token)


def _check_depth(document: object) -> None:
    level: list[Any] = [[document]]
    for _ in range(MAX_DEPTH + 1):
        lists = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for item in chain(*lists) if isinstance(item, dict | list)]
    if level:
        raise ReportError(f"nested deeper than {MAX_DEPTH} levels")
