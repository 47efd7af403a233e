"""What `.dvc` files state about data files: paths, digests and sizes (dvc/schema.py and
dvc/output.py of DVC). They come from an untrusted checkout."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from repro_gate.spec.document import Document, parse
from repro_gate.spec.errors import KeyPath, Refused, escaped, shortened
from repro_gate.spec.model import DataItem

# hex digits of each algorithm
DIGITS = {
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
}
MAX_ITEMS = 10_000  # that one declaration file may stand for

_DIGEST_NAME = re.compile(
    r"(sha[-_]?[0-9]|md[0-9]|crc[-_]?[0-9]|blake[0-9]|xxh[0-9]|xxhash|adler|ripemd|whirlpool)[-_0-9a-z]*|checksum|etag|digest|hash",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_AGAIN = "let DVC write it again: `dvc add` the data, or `dvc commit`"


@dataclass(frozen=True)
class DataProblem:
    """What is wrong with a declaration. `where` is `path:line`, or the item's path where there is
    no line.

    `kind`: `digest` (it cannot be one: its length, its characters or its algorithm) or
    `declaration`.
    """

    where: str
    message: str
    remedy: str
    kind: str = "declaration"


@dataclass
class Found:
    """What a declaration file states. Paths of items are relative to its folder; `source` of each
    is `path:line`."""

    name: str
    items: list[DataItem] = field(default_factory=list)
    problems: list[DataProblem] = field(default_factory=list)

    def where(self, line: int) -> str:
        """A line of the file, as messages name it."""
        return f"{escaped(self.name)}:{line}"

    def fault(self, line: int, message: str, remedy: str, kind: str = "declaration") -> None:
        """Keep a problem."""
        self.problems.append(DataProblem(self.where(line), message, remedy, kind))


def wrong_digest(algorithm: str, value: str) -> str:
    """What is wrong with a digest, in a sentence; empty: nothing. A `.dir` that DVC puts behind an
    md5 has to be cut off before."""
    if algorithm not in DIGITS:
        return (
            f"`{quoted(algorithm)}` is not a digest that is known here, wanted one of "
            f"{', '.join(DIGITS)}"
        )
    if len(value) != DIGITS[algorithm]:
        return (
            f"{algorithm} has {len(value)} characters, wanted {DIGITS[algorithm]} hex digits: "
            f"{quoted(value)}"
        )
    if not re.fullmatch(r"[0-9a-fA-F]*", value):
        return f"{algorithm} holds characters that are no hex digits: {quoted(value)}"
    return ""


def quoted(value: object) -> str:
    """Untrusted text as a message shows it: cut short, with what does not print written out."""
    return shortened(escaped(str(value)))


def read_dvc(text: str, name: str) -> Found:
    """What a `.dvc` file, called `name` in messages, states about each of its outs."""
    found = Found(name)
    try:
        document = parse(text, what="a .dvc file")
    except Refused as refused:
        found.fault(refused.problem.line or 1, f"cannot be read: {refused.problem.message}", _AGAIN)
        return found
    for problem in document.problems:
        found.fault(problem.line or 1, f"{problem.key}: {problem.message}", _AGAIN)
    outs = document.data.get("outs") if isinstance(document.data, dict) else None
    if not isinstance(outs, list) or not 0 < len(outs) <= MAX_ITEMS:
        many = isinstance(outs, list) and bool(outs)
        message = (
            f"has more than {MAX_ITEMS:,} outs" if many else "names no outs, so it declares no data"
        )
        found.fault(
            _line(document, ("outs",)),
            message,
            "declare the folder that holds them" if many else _AGAIN,
        )
        return found
    found.items += [
        item
        for number, out in enumerate(outs)
        if (item := _out(found, document, out, ("outs", number))) is not None
    ]
    return found


def _line(document: Document, at: KeyPath) -> int:
    place = document.keys.get(at) or document.values.get(at)
    return (place.line if place is not None else None) or 1


def _out(found: Found, document: Document, out: Any, at: KeyPath) -> DataItem | None:
    """One out of a `.dvc` file. Scalars are taken by their text: an md5 of digits alone is no
    number."""
    stated = (
        {key: document.literals.get((*at, key), "") for key in out} if isinstance(out, dict) else {}
    )
    path, md5 = stated.get("path", ""), stated.get("md5", "").lower()
    if not path:
        found.fault(_line(document, at), "an out without a path", _AGAIN)
        return None
    if "://" in path and _SCHEME.match(path):
        message = f"{quoted(path)} is not on this machine, so it cannot be verified"
        found.fault(_line(document, (*at, "path")), message, "fetch it and declare the copy")
        return None
    other = next(
        (key for key in stated if key != "hash" and _is_digest_name(key)),
        "files" if "files" in stated else None,
    )
    key, message, remedy, kind = "md5", "", _AGAIN, "digest"
    if stated.get("hash", "md5") != "md5":
        key, message = "hash", f"`hash: {quoted(stated['hash'])}` is unknown here, wanted `md5`"
    elif "md5" in stated and "hash" not in stated:
        message, remedy = (
            "this md5 is of DVC 2, which changed line ends before it took it",
            "run `dvc cache migrate --dvc-files` (DVC 3)",
        )
    elif "md5" in stated:
        message = wrong_digest("md5", md5.removesuffix(".dir"))
    elif other is not None:
        message = (
            f"{quoted(path)} has only `{quoted(other)}`, which its store made and nobody can "
            "recompute"
        )
        key, remedy, kind = other, "state its sha256 in the spec", "declaration"
    if message:
        found.fault(_line(document, (*at, key)), message, remedy, kind)
    size, source = (
        out.get("size"),
        found.where(_line(document, (*at, "md5" if "md5" in stated else "path"))),
    )
    whole = os.path.join(document.literals.get(("wdir",), ""), path)
    return DataItem(
        whole,
        None,
        None if message else md5 or None,
        size if type(size) is int and size >= 0 else None,
        source,
    )


def _is_digest_name(name: str) -> bool:
    return name.lower() in DIGITS or _DIGEST_NAME.fullmatch(name) is not None
