"""The one reader and the one writer of `repro.baseline.yml`: block-style YAML that a person can
review, read back as untrusted input.

Every hash over inputs is made again when it is read, so an entry whose inputs were edited by hand
is refused, at its line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from repro_gate._version import DOCS_URL
from repro_gate.baseline.config_hash import made_again
from repro_gate.baseline.model import FILE_NAME, Baseline, Entry
from repro_gate.errors import GateError, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, read_whole
from repro_gate.spec.document import MAX_BYTES, compose, document_of, scalar
from repro_gate.spec.errors import KeyPath, Refused

MAX_NODES = 100_000  # values in all

_HEADER = f"""\
# What this training ended with, on each platform that it was gated on. Written by `repro-gate baseline`; how to read it:
# {DOCS_URL}/baseline.md
# Review a change of it like code: where a digest moves, training gives other numbers. Inputs that were edited by hand are refused.
"""  # noqa: E501
_REMEDY = (
    "restore it from the base branch, or delete it and "
    "write it anew with `repro-gate baseline`"
)
_PLACE = re.compile(r" - at (?:`key` in )?`\$")  # as msgspec names it
_STEP_OF_PATH = re.compile(r"\.([\w-]+)|\[(\d+)\]")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    entries: tuple[Entry, ...]


def read_baseline(path: Path) -> Baseline:
    """Return the baseline at `path`, empty if there is no file. Raises UsageError for one that
    cannot be used, with line and column."""
    try:
        if path.is_symlink():
            raise Unreadable("is a link")
        if not os.path.lexists(path):
            return {}
        return parse_baseline(read_whole(path, MAX_BYTES), path.name)
    except Unreadable as error:
        raise _refusal(f"{for_terminal(path.name)}: {error}") from None


def parse_baseline(raw: bytes, source: str) -> Baseline:
    """Return the baseline that a file's bytes hold; `source` names it in errors. Raises UsageError
    with the first mistake: `repro.baseline.yml:LINE:COLUMN: …`."""
    try:
        document = document_of(compose(raw, max_nodes=MAX_NODES, what="a baseline"))
        if document.problems:
            raise Refused(document.problems[0])
        try:
            file = msgspec.convert(document.data, _File, str_keys=True)
        except msgspec.ValidationError as error:
            # a key in the message may be untrusted
            message, *places = _PLACE.split(for_terminal(str(error)))
            steps = _STEP_OF_PATH.findall("".join(places))
            keys = tuple(int(index) if index else key for key, index in steps)
            message = message[:1].lower() + message[1:200]
            raise Refused(document.problem(keys, message)) from None
        baseline = {}
        for index, entry in enumerate(file.entries):
            path: KeyPath = ("entries", index)
            if entry.platform in baseline:
                raise Refused(
                    document.problem(path, "a platform stands twice, keep one")
                )
            if len({result.seed for result in entry.outcomes}) < len(entry.outcomes):
                path = (*path, "outcomes")
                raise Refused(document.problem(path, "a seed stands twice"))
            try:
                made_again(entry)
            except UsageError as error:
                raise Refused(document.problem(path, error.message)) from None
            baseline[entry.platform] = entry
    except Refused as refused:
        raise _refusal(refused.problem.text(for_terminal(source))) from None
    return baseline


def dump_baseline(baseline: Baseline) -> str:
    """Return the text of the file. The same baseline gives the same bytes. Raises GateError for one
    that could not be read again."""
    entries = tuple(entry for _, entry in sorted(baseline.items()))
    text = _HEADER + yaml.dump(
        msgspec.to_builtins(_File(version=1, entries=entries), order="deterministic"),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
    )
    try:
        parse_baseline(text.encode(), FILE_NAME)
    except UsageError as error:
        raise GateError(
            f"the result cannot be recorded: {error.message}",
            remedy="capture fewer artifacts, or take entries of platforms that are no longer gated "
            "out of the file",
            reason_id="baseline/unwritable",
        ) from None
    return text


def _refusal(message: str) -> UsageError:
    return UsageError(message, remedy=_REMEDY, reason_id="usage/baseline")


class _Dumper(yaml.SafeDumper):
    """SafeDumper with `_text_node` for text."""


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Return text without quotes if YAML 1.2 reads text; PyYAML adds quotes where YAML 1.1 would
    not."""
    style = None if scalar(value) == value else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text_node)
