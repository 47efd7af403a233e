"""`repro.baseline.yml` as text: written so that a person can review it, read as untrusted input.
YAML in block style, sorted; one block
for each platform, so that a new platform is lines added. Every hash over inputs is made again when it is read, so an entry whose inputs
were edited is refused. Pure but for `read_baseline`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from repro_gate._version import DOCS_URL
from repro_gate.baseline.config_hash import plain
from repro_gate.baseline.entries import Wrong, lock_of
from repro_gate.baseline.model import FILE_NAME, Baseline, Entry, Outcome
from repro_gate.errors import GateError, UsageError
from repro_gate.spec.document import parse, scalar
from repro_gate.spec.errors import Problem, Refused, escaped
from repro_gate.spec.validation import value_place

MAX_NODES = 100_000  # values in all
MAX_BYTES = 1 << 20

_HEADER = f"""\
# What this training ended with, on each platform that it was gated on. Written by `repro-gate baseline`; how to read it:
# {DOCS_URL}/baseline.md
# Review a change of it like code: where a digest moves, training gives other numbers. Inputs that were edited by hand are refused.
"""
_REMEDY = "restore it from the base branch, or delete it and write it anew with `repro-gate baseline`"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+@=(),-]*(?:[ :][A-Za-z0-9_./+@=(),-]+)*")
_LONGEST_KEY = 1_000  # characters; YAML takes 1,024 for a key on one line with its value


class _Block(str):
    """Text of several lines, written as one."""

    __slots__ = ()


def read_baseline(path: Path) -> Baseline | None:
    """The baseline at `path`, None where there is no file. Raises UsageError for one that cannot be used, with line and column."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else error.strerror
        raise _refusal(f"{escaped(path.name)}: cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refusal(f"{escaped(path.name)}: cannot be read: it is not a regular file")
    with os.fdopen(handle, "rb") as file:
        return read_lock_text(file.read(MAX_BYTES + 1), path.name)


def read_lock_text(text: str | bytes, source: str) -> Baseline:
    """The baseline that this text is; `source` names it in errors. Raises UsageError with the first mistake:
    `repro.baseline.yml:LINE:COLUMN: …`."""
    text = _decoded(text, source)
    conflict = _CONFLICT.search(text)
    if conflict:
        message = "a merge conflict stands here, and which side is right is not for the gate to say"
        raise _refused(Problem(text.count("\n", 0, conflict.start()) + 1, 1, "", message), source)
    try:
        document = parse(text, max_nodes=MAX_NODES, what="a baseline")
    except Refused as refused:
        raise _refused(refused.problem, source) from None
    if document.problems:
        raise _refused(document.problems[0], source)
    try:
        return lock_of(document.data)
    except Wrong as wrong:
        place = document.keys.get(wrong.path) if wrong.about_key else None
        raise _refused((place or value_place(document, wrong.path)).problem(wrong.path, wrong.message), source, wrong.remedy) from None


def dump_baseline(baseline: Baseline) -> str:
    """The text of the file. The same baseline gives the same bytes. Raises GateError for one that could not be read again."""
    entries = {root: _entry(baseline.entries[root]) for root in sorted(baseline.entries)}
    text = _HEADER + "\n".join(_lines({"version": 1, "entries": entries})) + "\n"
    try:
        read_lock_text(text, FILE_NAME)
    except UsageError as error:
        raise GateError(
            f"the result cannot be recorded: {error.message}",
            remedy="capture fewer artifacts, or take entries of platforms that are no longer gated out of the file",
            reason_id="baseline/unwritable",
        ) from None
    return text


def _decoded(text: str | bytes, source: str) -> str:
    if len(text) > MAX_BYTES:
        raise _refusal(f"{escaped(source)}: larger than 1 MiB, a baseline is far smaller")
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise _refused(Problem(line, 1, "", f"not UTF-8: byte {text[error.start]:#04x}"), source) from None


def _refused(problem: Problem, source: str, remedy: str = "") -> UsageError:
    return _refusal(problem.text(escaped(source)), remedy)


def _refusal(message: str, remedy: str = "") -> UsageError:
    return UsageError(message, remedy=remedy or _REMEDY, reason_id="usage/baseline")


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "config-hash": entry.config_hash,
        "recipe": entry.recipe,
        "recorded": entry.recorded,
        "tool-version": entry.tool_version,
        "outcomes": [_outcome(outcome) for outcome in sorted(entry.outcomes, key=lambda outcome: outcome.seed)],
        "recipe-inputs": dict(sorted(entry.recipe_inputs.items())),
        "platform-inputs": dict(sorted(entry.platform_inputs.items())),
        "outside": _texts(entry.outside),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "steps": outcome.steps,
        "losses": outcome.losses,
        "weights": outcome.weights,
        "optimizer": outcome.optimizer,
        "artifacts": _texts(outcome.artifacts),
        "loss-curve": _Block("\n".join(f"{step} {float.fromhex(loss)!r}" for step, loss in outcome.loss_curve)),
    }


def _texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {str(plain(name)): str(plain(text)) for name, text in sorted(texts.items())}


def _lines(value: dict[str, Any] | list[Any]) -> Iterator[str]:
    """A mapping or list, neither empty, in block style."""
    if isinstance(value, list):
        for item in value:
            yield from ("- " + line if first else "  " + line for first, line in _numbered(_value_lines(item)))
        return
    for name, item in value.items():
        key = _scalar(name)
        long = len(key) > _LONGEST_KEY
        if long:
            yield f"? {key}"
        head = ":" if long else f"{key}:"
        inner = list(_value_lines(item))
        if isinstance(item, _Block) and item:
            yield f"{head} |-"
        elif len(inner) == 1 and not (isinstance(item, (dict, list)) and item):
            yield f"{head} {inner[0]}"
            continue
        else:
            yield head
        yield from (f"  {line}" for line in inner)


def _value_lines(value: Any) -> Iterator[str]:
    if isinstance(value, _Block) and value:
        yield from value.split("\n")
    elif isinstance(value, (dict, list)) and value:
        yield from _lines(value)
    else:
        yield "{}" if value == {} else "[]" if value == [] else _scalar(value)


def _numbered(lines: Iterator[str]) -> Iterator[tuple[bool, str]]:
    return ((place == 0, line) for place, line in enumerate(lines))


def _scalar(value: str | int | bool | None) -> str:
    """As YAML has it: text without quotes where it could be nothing else, in double quotes with escapes otherwise."""
    if not isinstance(value, str):
        return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
    others = yaml.SafeLoader.yaml_implicit_resolvers.get(value[:1], [])  # what readers of YAML 1.1 take for a date, a number or `no`
    if _PLAIN.fullmatch(value) and scalar(value) == value and not any(pattern.match(value) for _, pattern in others):
        return value
    return '"' + "".join(_quoted(ch) for ch in value) + '"'


def _quoted(ch: str) -> str:
    if ch in '"\\':
        return "\\" + ch
    return ch if ch.isprintable() else f"\\x{ord(ch):02x}" if ord(ch) < 0x100 else f"\\U{ord(ch):08x}"
