"""The hidden first line of our comment: it says whose the comment is and of which run it tells, so that the next run finds it again.
 Only the first line of a comment is looked at and only the exact form that
is written here counts: a marker that is quoted further down is text like any other. A marker proves nothing by itself, since everybody who
may comment can write one; `comment` holds the author against the token's own identity as well.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.model import Marker

VERSION = 1
LINE_LIMIT = 400  # characters; the longest that is written has 299
_OPEN, _CLOSE = "<!-- repro-gate ", " -->"
_KEY = re.compile(r"[0-9a-z]{1,64}")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STATE = re.compile(r"[0-9a-f]{0,64}")
_LARGEST = 2**53 - 1  # ids come through JSON numbers


def key_for(spec_path: str, *extra: str) -> str:
    """The marker's key: 32 hex digits, one for each spec (its path in the repository) and whatever else tells two gates apart.

    The same path in another spelling (`./repro.yml`) has the same key. It depends on nothing that changes from run to run.
    """
    parts = [posixpath.normpath(spec_path), *extra]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def marker_line(marker: Marker) -> str:
    """The line itself, without its end. Raises UsageError for a marker that could not be read back.

    Its values are hex digits and numbers, so nothing in it can end the HTML comment.
    """
    line = _line(marker)
    if read_marker(line) != marker:
        raise UsageError(
            f"no comment can be marked for {for_terminal(str(marker), LINE_LIMIT)}",
            remedy="a marker holds a commit of 40 or 64 hex digits and the numbers of a workflow run: post a report that the action made",
        )
    return line


def read_marker(body: str) -> Marker | None:
    """The marker in a comment's first line; None where there is none or it is not exactly of the form that `marker_line` writes."""
    line = body[: LINE_LIMIT + 2].partition("\n")[0].removesuffix("\r")
    if len(line) > LINE_LIMIT or not line.startswith(_OPEN) or not line.endswith(_CLOSE):
        return None
    try:
        fields = json.loads(line[len(_OPEN) : -len(_CLOSE)])
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or set(fields) != {"v", "key", "head", "run", "attempt", "state"}:
        return None
    key, head, run, attempt, state = (fields[name] for name in ("key", "head", "run", "attempt", "state"))
    if not (_is(key, _KEY) and _is(head, _SHA) and _is(state, _STATE) and _is_id(run) and _is_id(attempt)):
        return None
    marker = Marker(key, head, run, attempt, state)
    return marker if _line(marker) == line else None  # another version, another order, a field twice


def _line(marker: Marker) -> str:
    fields = {
        "v": VERSION,
        "key": marker.key,
        "head": marker.head_sha,
        "run": marker.run_id,
        "attempt": marker.run_attempt,
        "state": marker.state,
    }
    return f"{_OPEN}{json.dumps(fields, separators=(',', ':'))}{_CLOSE}"


def _is(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_id(value: object) -> bool:
    return type(value) is int and 1 <= value <= _LARGEST
