"""The machine's face of the Report: `report.json`, its published schema (`schema.json` beside this file), and the reader of a foreign one.

Called by `cli` (writing, `schema --report`, `compare`) and by whatever reads a report that came from somewhere else. A report that is read
is untrusted: it is held to limits before it is held to the schema. What is written here always passes both.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from repro_gate.analysis.model import Comparison, Cost, Divergence
from repro_gate.errors import GateError
from repro_gate.report.escape import clip, for_terminal
from repro_gate.report.model import Report, SeedResult

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

SCHEMA_ID = "repro-gate/report/v1"
MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
_ROWS = {  # the `maxItems` of the schema
    "by_step": 10_000,
    "losses": 10_000,
    "weights": 1_000,
    "reasons": 1_000,
    "checklist": 1_000,
    "runs": 1_000,
    "names": 1_000,
    "log_tail": 200,
    "evidence": 100,
}
# (characters of one text, entries of one list or mapping), the next only where the document would pass MAX_BYTES. No smaller than what
# the format itself needs: a commit has 64 characters, the document 16 fields.
_SHORTER = ((8_192, 10_000), (1_024, 1_000), (64, 100), (64, 24))
_PROBLEMS = 5


class ReportError(GateError):
    """A report.json that cannot be read or does not follow its schema: exit code 2."""

    def __init__(self, message: str, *, remedy: str = "", reason_id: str = "report/invalid") -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)


def to_json(report: Report) -> dict[str, Any]:
    """The document of `schema.json`. A part that was not measured is None; NaN and infinities are the strings `nan`, `inf` and `-inf`.

    Lists keep their first entries up to the limits of the schema; the totals beside them always count everything.
    """
    document = {
        "schema": SCHEMA_ID,
        "verdict": report.verdict,
        "tool_version": report.tool_version,
        "started": report.started,
        "seconds": report.seconds,
        "subject": {**vars(report.subject), "uncommitted": _first("names", report.subject.uncommitted)},
        "reasons": [vars(item) for item in _first("reasons", report.reasons)],
        "notes": [vars(item) for item in _first("reasons", report.notes)],
        "determinism": _determinism(report),
        "diagnosis": None,
        "noise_floor": None
        if report.noise_floor is None
        else {
            **vars(report.noise_floor),
            "first_divergence": _divergence(report.noise_floor.first_divergence),
            "losses": _first("losses", report.noise_floor.losses),
        },
        "cost": _cost(report.cost, report.cost_budget_pct),
        "checklist": [{**vars(item), "evidence": _first("evidence", item.evidence)} for item in _first("checklist", report.checklist)],
        "content_address": None,
        "runs": [{**vars(run), "log_tail": run.log_tail[-_ROWS["log_tail"] :]} for run in _first("runs", report.runs)],
        "fingerprint": None
        if report.fingerprint is None
        else {**vars(report.fingerprint), "by_step": _first("by_step", report.fingerprint.by_step)},
        "reproduce": report.reproduce,
    }
    plain = _plain(document)
    assert isinstance(plain, dict)  # a dict goes in
    return plain


def comparison_to_json(pair: Comparison) -> dict[str, Any]:
    """One comparison by itself, as `repro-gate compare --json` writes it: the fields of `determinism` that two runs alone can have."""
    plain = _plain(
        {
            **_tallies(pair),
            "by_kind": {kind: vars(tally) for kind, tally in pair.by_kind.items()},
            "weights": [_divergence(item) for item in _first("weights", pair.weights)],
            "losses": _first("losses", pair.losses),
        }
    )
    assert isinstance(plain, dict)  # a dict goes in
    return plain


def dumps(report: Report) -> str:
    """`to_json` as text: keys sorted, two spaces, ASCII (so that `cat` is safe), no NaN token, never longer than `load` will read."""
    document = to_json(report)
    text = ""
    for characters, entries in _SHORTER:
        text = json.dumps(_shortened(document, characters, entries), sort_keys=True, indent=2, allow_nan=False) + "\n"
        if len(text) <= MAX_BYTES:  # ASCII: characters are bytes
            break
    return text


def schema_text() -> str:
    """The published JSON Schema (2020-12) of report.json, as it is shipped."""
    return resources.files("repro_gate.report").joinpath("schema.json").read_text(encoding="utf-8")


def validate(document: object) -> None:
    """Hold a parsed document against the schema. Raises ReportError with the JSON pointer of each problem, at most five."""
    from jsonschema import Draft202012Validator

    errors = list(islice(Draft202012Validator(json.loads(schema_text())).iter_errors(document), _PROBLEMS))
    if errors:
        lines = sorted(f"{_pointer(error.absolute_path)}: {_problem(error)}" for error in errors)
        raise ReportError(
            "not a report of this version: " + "\n  ".join(lines), remedy="`repro-gate schema --report` prints what is expected"
        )


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read an untrusted report.json: at most 16 MiB and 64 levels, UTF-8, no duplicate key, no NaN or infinity, valid by the schema.

    Raises ReportError, which names the file and what is wrong with it.
    """
    name = for_terminal(os.fspath(path), 200)
    try:
        document = json.loads(_read(path, name), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
        _check_depth(document)
        validate(document)
    except ReportError as error:
        raise ReportError(f"{name}: {error.message}", remedy=error.remedy) from None
    except RecursionError:
        raise ReportError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{name}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # JSONDecodeError, and an integer of more digits than Python reads
        raise ReportError(f"{name}: not JSON: {for_terminal(str(error), 200)}") from None
    assert isinstance(document, dict)  # the schema says so
    return document


def _determinism(report: Report) -> dict[str, Any] | None:
    found = report.determinism
    if found is None:
        return None
    pair = found.comparison
    counted = sum(run.condition == "deterministic" and run.seed == found.seed for run in report.runs)
    return {
        **_tallies(pair),
        "seed": found.seed,
        "tolerance": None if report.tolerance is None else vars(report.tolerance),
        "losses": _first("losses", pair.losses),
        "runs": max(counted, 2),
        "by_kind": {kind: vars(tally) for kind, tally in pair.by_kind.items()},
        "by_step": [{"step": step, "differing": differing} for step, differing in _first("by_step", pair.by_step)],
        "weights": [_divergence(item) for item in _first("weights", pair.weights)],
        "seeds": [_seed(item) for item in _first("runs", report.comparisons)],
        "determinism_settings": dict(report.settings),
        "non_finite": [{"step": step, "value": value} for step, value in _first("names", report.non_finite)],
    }


def _tallies(pair: Comparison) -> dict[str, Any]:
    return {
        "identical": pair.identical,
        "steps": pair.steps,
        "tensors": pair.tensors,
        "differing": pair.differing,
        "first_divergence": _divergence(pair.first_divergence),
    }


def _seed(result: SeedResult) -> dict[str, Any]:
    return {"seed": result.seed, **_tallies(result.comparison)}


def _divergence(item: Divergence | None) -> dict[str, Any] | None:
    """One divergence, its distances beside its name rather than a level deeper."""
    if item is None:
        return None
    far = {"max_abs": None, "max_ulp": None, "l2": None, "relative_l2": None} if item.distance is None else vars(item.distance)
    return {**{key: value for key, value in vars(item).items() if key != "distance"}, **far}


def _cost(price: Cost | None, budget: float | None) -> dict[str, Any] | None:
    return None if price is None else {**vars(price), "max_percent": budget}


def _first(kind: str, rows: tuple[Any, ...]) -> tuple[Any, ...]:
    return rows[: _ROWS[kind]]


def _plain(value: object) -> object:
    """JSON's own types only: tuples to lists, non-finite numbers to strings, lone surrogates spelled out, anything else to its text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _text(str(value))


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _shortened(value: object, characters: int, entries: int) -> object:
    if isinstance(value, str):
        return clip(value, characters)
    if isinstance(value, dict):
        return {clip(key, characters): _shortened(item, characters, entries) for key, item in islice(value.items(), entries)}
    return [_shortened(item, characters, entries) for item in value[:entries]] if isinstance(value, list) else value


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
