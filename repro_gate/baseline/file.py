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
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.document import made_again
from repro_gate.baseline.model import FILE_NAME, Baseline, Entry, problem_of
from repro_gate.errors import GateError, UsageError
from repro_gate.spec.document import Document, scalar
from repro_gate.spec.errors import KeyPath, Refused, escaped
from repro_gate.spec.loader import MAX_BYTES, document_of
from repro_gate.spec.validation import value_place

VERSION = 1
MAX_NODES = 100_000  # values in all

_HEADER = f"""\
# What this training ended with, on each platform that it was gated on. Written by `repro-gate baseline`; how to read it:
# {DOCS_URL}/baseline.md
# Review a change of it like code: where a digest moves, training gives other numbers. Inputs that were edited by hand are refused.
"""  # noqa: E501
_REMEDY = (
    "restore it from the base branch, or delete it and write it anew with `repro-gate baseline`"
)
_STEP_OF_PATH = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")


_Found = TypeVar("_Found")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    entries: dict[str, dict[str, Any]]


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
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        document = document_of(raw, max_nodes=MAX_NODES, what="a baseline")
        if document.problems:
            raise Refused(document.problems[0])
        entries = _of_type(document, document.data, _File, ()).entries
        found = {root: _entry(document, root, value) for root, value in sorted(entries.items())}
    except Refused as refused:
        raise _refusal(refused.problem.text(escaped(source))) from None
    return Baseline(found)


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


def _entry(document: Document, root: str, value: dict[str, Any]) -> Entry:
    """One entry, strictly by its type; then every hash over its inputs is made again. Raises
    Refused."""
    path: KeyPath = ("entries", root)
    entry = _of_type(document, {**value, "platform": root}, Entry, path)
    seeds = [result.seed for result in entry.outcomes]
    if len(set(seeds)) < len(seeds):
        raise _refused(document, (*path, "outcomes"), "a seed stands twice")
    try:
        made_again(
            ConfigHash(
                config_hash=entry.config_hash,
                recipe=entry.recipe,
                platform=entry.platform,
                recipe_inputs=entry.recipe_inputs,
                platform_inputs=entry.platform_inputs,
            )
        )
    except UsageError as error:
        raise _refused(document, path, error.message) from None
    return entry


def _of_type(document: Document, value: object, kind: type[_Found], path: KeyPath) -> _Found:
    """Return a value by its type. Raises Refused, at the key as far as msgspec names it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, where = problem_of(error)
        inside = tuple(
            int(number) if number.isdecimal() else name
            for name, number in _STEP_OF_PATH.findall(where)
            if number != "..."
        )
        raise _refused(document, (*path, *inside), message) from None


def _refused(document: Document, path: KeyPath, message: str) -> Refused:
    return Refused(value_place(document, path).problem(path, message))


def _refusal(message: str) -> UsageError:
    return UsageError(message, remedy=_REMEDY, reason_id="usage/baseline")


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
