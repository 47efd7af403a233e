"""What both JSON renderers (`json_report`, `checklist`) do to a value before it is JSON: plain types only, and never more than a reader
takes.

Pure functions over what the gate knows; they repair what JSON cannot hold and raise nothing. Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from repro_gate.escape import clip

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
_CHARACTERS = 8_192  # of one text
_INTEGER_BITS = 4_096  # Python itself refuses to read or write an integer of more than 4,300 digits
# (characters of one text, entries of one list or mapping, levels), the next only where the document would pass MAX_BYTES. No smaller than
# what the format itself needs: a digest has 71 characters, the document 20 fields, the deepest fixed field 7 levels.
_SHORTER = ((1_024, 1_000, MAX_DEPTH), (71, 100, 12), (71, 24, 8))


def plain(value: object, levels: int = MAX_DEPTH - 1, characters: int = _CHARACTERS) -> Any:
    """JSON's own types only: tuples to lists, non-finite numbers to strings, lone surrogates spelled out, anything else to its text.

    A float stays a float (`1.0` is not `1`). Text is clipped to `characters`, and what lies deeper than `levels` is `…`; by default what
    a field of the document itself may hold.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _INTEGER_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if levels <= 0:
            return "…"
        if isinstance(value, Mapping):
            return {_text(str(key), characters): plain(item, levels - 1, characters) for key, item in value.items()}
        return [plain(item, levels - 1, characters) for item in value]
    return _text(str(value), characters)


def plain_document(fields: Mapping[str, object]) -> dict[str, Any]:
    """A whole document of plain values, at most MAX_DEPTH levels deep with itself."""
    return {name: plain(value) for name, value in fields.items()}


def to_text(document: Mapping[str, Any]) -> str:
    """A plain document as text: keys sorted, two spaces, ASCII (so that `cat` is safe), no NaN token, never longer than MAX_BYTES."""
    text = _written(document)
    for characters, entries, levels in _SHORTER:
        if len(text) <= MAX_BYTES:  # ASCII: characters are bytes
            break
        text = _written(_shortened(document, characters, entries, levels))
    return text


def _written(document: object) -> str:
    return json.dumps(document, sort_keys=True, indent=2, allow_nan=False) + "\n"


def _text(value: str, limit: int) -> str:
    """Clipped before it is copied: thousands of rows may share one text of megabytes."""
    return clip(clip(value, limit).encode("utf-8", "backslashreplace").decode("utf-8"), limit)


def _shortened(value: object, characters: int, entries: int, levels: int) -> object:
    if isinstance(value, str):
        return clip(value, characters)
    if not isinstance(value, dict | list):
        return value
    if levels <= 0:
        return "…"
    if isinstance(value, dict):
        return {clip(key, characters): _shortened(item, characters, entries, levels - 1) for key, item in islice(value.items(), entries)}
    return [_shortened(item, characters, entries, levels - 1) for item in value[:entries]]
