"""The one reader and the one writer of `repro.baseline.yml`: block-style YAML that a person can
review, read back as untrusted input.

Every hash over inputs is made again when it is read, so an entry whose inputs were edited by hand
is refused, at its line.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from repro_gate._version import DOCS_URL
from repro_gate.baseline.config_hash import hash_inputs
from repro_gate.baseline.document import wrong_input
from repro_gate.baseline.model import FILE_NAME, MAX_CURVE, Baseline, Entry, problem_of
from repro_gate.errors import GateError, UsageError
from repro_gate.spec.document import parse, scalar
from repro_gate.spec.errors import KeyPath, Problem, Refused, escaped
from repro_gate.spec.validation import shown, value_place
from repro_gate.trace.format import MAX_STEP

VERSION = 1
MAX_NODES = 100_000  # values in all
MAX_BYTES = 1 << 20

_HEADER = f"""\
# What this training ended with, on each platform that it was gated on. Written by `repro-gate baseline`; how to read it:
# {DOCS_URL}/baseline.md
# Review a change of it like code: where a digest moves, training gives other numbers. Inputs that were edited by hand are refused.
"""  # noqa: E501
_REMEDY = (
    "restore it from the base branch, or delete it and write it anew with `repro-gate baseline`"
)
_EDITED = "the entry was edited by hand, or two were merged"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)
_POINT = re.compile(r"([0-9]{1,10}) (-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|nan|-?inf)")
_STEP_OF_PATH = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")


_Found = TypeVar("_Found")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    entries: dict[str, dict[str, Any]]


class _Wrong(Exception):
    """What is wrong with the value at `path`, or with the key there (`about_key`); `remedy` where
    the usual one does not help."""

    def __init__(
        self, path: KeyPath, message: str, *, about_key: bool = False, remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.path, self.message, self.about_key, self.remedy = path, message, about_key, remedy


def read_baseline(path: Path) -> Baseline | None:
    """The baseline at `path`, None where there is no file. Raises UsageError for one that cannot be
    used, with line and column."""
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
        return parse_baseline(file.read(MAX_BYTES + 1), path.name)


def parse_baseline(text: str | bytes, source: str) -> Baseline:
    """The baseline that this text is; `source` names it in errors. Raises UsageError with the first
    mistake: `repro.baseline.yml:LINE:COLUMN: …`."""
    text = _decoded(text, source)
    if conflict := _CONFLICT.search(text):
        message = "a merge conflict stands here, and which side is right is not for the gate to say"
        raise _refused(Problem(text.count("\n", 0, conflict.start()) + 1, 1, "", message), source)
    try:
        document = parse(text, max_nodes=MAX_NODES, what="a baseline")
    except Refused as refused:
        raise _refused(refused.problem, source) from None
    if document.problems:
        raise _refused(document.problems[0], source)
    try:
        return _baseline(document.data)
    except _Wrong as wrong:
        key = document.keys.get(wrong.path) if wrong.about_key else None
        problem = (key or value_place(document, wrong.path)).problem(wrong.path, wrong.message)
        raise _refused(problem, source, wrong.remedy) from None


def dump_baseline(baseline: Baseline) -> str:
    """The text of the file. The same baseline gives the same bytes. Raises GateError for one that
    could not be read again."""
    entries = {root: _as_written(entry) for root, entry in sorted(baseline.entries.items())}
    text = _HEADER + yaml.dump(
        {"version": VERSION, "entries": entries},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
    )
    try:
        parse_baseline(text, FILE_NAME)
    except UsageError as error:
        raise GateError(
            f"the result cannot be recorded: {error.message}",
            remedy="capture fewer artifacts, or take entries of platforms that are no longer gated "
            "out of the file",
            reason_id="baseline/unwritable",
        ) from None
    return text


# ---- reading


def _decoded(text: str | bytes, source: str) -> str:
    if len(text) > MAX_BYTES:
        raise _refusal(f"{escaped(source)}: larger than 1 MiB, a baseline is far smaller")
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise _refused(
            Problem(line, 1, "", f"not UTF-8: byte {text[error.start]:#04x}"), source
        ) from None


def _baseline(data: object) -> Baseline:
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        message = f"written by a newer repro-gate: version {version}, this one reads {VERSION}"
        remedy = (
            "install the repro-gate that wrote it, or delete it and write it anew with `repro-gate "
            "baseline`"
        )
        raise _Wrong(("version",), message, remedy=remedy)
    entries = _of_type(data, _File, ()).entries
    return Baseline({root: _entry(root, value) for root, value in sorted(entries.items())})


def _entry(root: str, value: dict[str, Any]) -> Entry:
    """One entry, strictly by its type; then every hash over its inputs is made again. Raises
    _Wrong."""
    path: KeyPath = ("entries", root)
    if "platform" in value:
        raise _Wrong((*path, "platform"), "is the entry's own key, and stands nowhere else")
    entry = _of_type({**value, "platform": root}, Entry, path)
    for name in ("recipe-inputs", "platform-inputs"):
        if wrong := wrong_input(value[name]):
            raise _Wrong((*path, name, wrong[0]), wrong[1])
    seeds = [result.seed for result in entry.outcomes]
    for number, result in enumerate(entry.outcomes):
        if result.seed in seeds[:number]:
            raise _Wrong((*path, "outcomes", number, "seed"), f"seed {result.seed} stands twice")
        _check_curve(result.loss_curve, (*path, "outcomes", number, "loss-curve"))
    real = hash_inputs(entry.recipe_inputs, entry.platform_inputs)
    for name, place in (
        ("recipe", (*path, "recipe")),
        ("platform", path),
        ("config_hash", (*path, "config-hash")),
    ):
        if getattr(entry, name) != getattr(real, name):
            message = f"its inputs give {name} {getattr(real, name)}: {_EDITED}"
            raise _Wrong(place, message, about_key=place == path)
    return entry


def _of_type(value: object, kind: type[_Found], path: KeyPath) -> _Found:
    """Return a value by its type. Raises _Wrong, at the key as far as msgspec names it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, where = problem_of(error)
        inside = tuple(
            int(number) if number.isdecimal() else name
            for name, number in _STEP_OF_PATH.findall(where)
            if number != "..."
        )
        raise _Wrong(path if inside == ("platform",) else (*path, *inside), message) from None


def _check_curve(text: str, path: KeyPath) -> None:
    """Raise _Wrong for what is not lines of `STEP LOSS`, steps ascending, as Python writes the
    loss."""
    last = -1
    for number, line in enumerate(text.split("\n") if text else []):
        found = _POINT.fullmatch(line)
        step = int(found[1]) if found else -1
        if (
            found is None
            or not last < step <= MAX_STEP
            or f"{step} {float(found[2])!r}" != line
            or number >= MAX_CURVE
        ):
            message = "wanted steps that ascend, each with its loss, such as `49 0.0123`, at most"
            raise _Wrong(path, f"found {shown(line)}, {message} {MAX_CURVE}")
        last = step


def _refused(problem: Problem, source: str, remedy: str = "") -> UsageError:
    return _refusal(problem.text(escaped(source)), remedy)


def _refusal(message: str, remedy: str = "") -> UsageError:
    return UsageError(message, remedy=remedy or _REMEDY, reason_id="usage/baseline")


# ---- writing


class _Lines(str):
    """Text that is written as a block of lines."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)  # lists are indented below their key


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Without quotes where YAML 1.2 reads text; PyYAML adds quotes where YAML 1.1 would not."""
    style = "|" if isinstance(value, _Lines) and value else None if scalar(value) == value else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text_node)
_Dumper.add_representer(_Lines, _text_node)


def _as_written(entry: Entry) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(entry)
    del written["platform"]
    written["outcomes"] = sorted(written["outcomes"], key=lambda result: int(result["seed"]))
    for result in written["outcomes"]:
        result["artifacts"] = dict(sorted(result["artifacts"].items()))
        result["loss-curve"] = _Lines(result["loss-curve"])
    if not entry.step_times:
        del written["step-times"]
    return written | {
        name: dict(sorted(written[name].items()))
        for name in ("recipe-inputs", "platform-inputs", "outside")
    }
