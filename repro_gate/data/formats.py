"""What `.dvc` files and Croissant metadata state about data files: paths, digests and sizes. Looks
whether files are there, reads none.

DVC: dvc/schema.py, dvc/output.py. Croissant 1.0: https://docs.mlcommons.org/croissant. Both come
from an untrusted checkout.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

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
_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]{1,9})?\s*([kmgtp]?(?:i?b)?|bytes?)", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FILES = {"FileObject", "FileSet"}
_AGAIN = "let DVC write it again: `dvc add` the data, or `dvc commit`"
_COMPUTE = "state what `sha256sum` prints for the file"


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


def read_croissant(text: str, name: str, folder: Path) -> Found | None:
    """What Croissant metadata in `folder`, called `name` in messages, states about its files; None:
    this is other JSON, so plain data.

    `contentUrl` is relative to the folder; a file that is fetched from the web counts if it lies
    beside the metadata under its own name. What is `containedIn` another file is covered by that
    one's digest.
    """
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs) and not repeated:
            repeated.append(Counter(key for key, _ in pairs).most_common(1)[0][0])
        return made

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "@context" not in data:
        return None
    listed = _listed(
        next((value for key, value in data.items() if _bare(key) == "distribution"), None)
    )
    told = next((_listed(value) for key, value in data.items() if _bare(key) == "conformsTo"), [])
    is_croissant = any(
        "mlcommons.org/croissant" in value for value in told if isinstance(value, str)
    )
    if not is_croissant and not any(_types(entry) & _FILES for entry in listed):
        return None
    found = Found(name)
    if repeated:
        found.fault(1, f"the key `{quoted(repeated[0])}` stands twice in one object", "keep one")
        return found
    if len(listed) > MAX_ITEMS:
        found.fault(
            1,
            f"its distribution has more than {MAX_ITEMS:,} entries",
            "declare the folder that holds the files",
        )
        return found
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for literal in _STRING.findall(line):
            lines.setdefault(literal, number)
    entries = [
        _Entry({_bare(name): value for name, value in entry.items()}, _types(entry), lines)
        for entry in listed
        if _types(entry) & _FILES
    ]
    if not entries:
        found.fault(
            1,
            "its `distribution` names no file",
            "give each file a FileObject with `contentUrl` and `sha256`",
        )
    known = {
        entry.text(key)
        for entry in entries
        if "FileObject" in entry.types
        for key in ("@id", "name")
        if entry.text(key)
    }
    for entry in entries:
        if "FileSet" in entry.types or "containedIn" in entry.fields:
            _require_container(entry, known, found)
        elif (item := _file_object(entry, folder, found)) is not None:
            found.items.append(item)
    return found


@dataclass(frozen=True)
class _Entry:
    """One entry of a distribution: its fields without prefixes, and the line where each text of the
    file first stands."""

    fields: dict[str, Any]
    types: set[str]
    lines: dict[str, int]

    def line(self, key: str, text: str = "") -> int:
        """The line of a field's text, or of what names the entry."""
        texts = (text, *(self.text(name) for name in (key, "@id", "name", "contentUrl")))
        return next(
            (
                self.lines[literal]
                for text in texts
                if (literal := json.dumps(text)[1:-1]) in self.lines and text
            ),
            1,
        )

    def text(self, key: str) -> str:
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    @property
    def label(self) -> str:
        return quoted(self.text("name") or self.text("@id") or "without a name")


def _file_object(entry: _Entry, folder: Path, found: Found) -> DataItem | None:
    url = entry.text("contentUrl")
    line = entry.line("contentUrl")
    if not url:
        found.fault(
            line,
            f"FileObject {entry.label} has no contentUrl",
            "say where it lies, relative to this file",
        )
        return None
    path = _local(url, entry.text("name"), folder)
    if path is None:
        message = (
            f"{quoted(url)} is not on this machine, and no file of its name lies beside this one"
        )
        found.fault(
            line,
            message,
            "download it beside the metadata, or declare the files that the training reads in "
            "the spec",
        )
        return None
    digests = _digests(entry, found)
    size = entry.fields.get("contentSize")
    match = (
        _SIZE.fullmatch(re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", str(size).strip()))
        if type(size) in (str, int)
        else None
    )
    in_bytes = match is not None and match[3].lower() in ("", "b", "byte", "bytes")
    if size is not None and (match is None or (in_bytes and (match[2] or "").strip(".0"))):
        message = (
            f'{entry.label}: contentSize is "{quoted(size)}", wanted bytes such as `1024 B`, or '
            "`1.5 MB`"
        )
        found.fault(entry.line("contentSize"), message, "state the file's size in bytes")
        in_bytes = False
    source = found.where(
        next((entry.line(key) for key in ("sha256", "md5") if key in digests), line)
    )
    return DataItem(
        path,
        digests.get("sha256"),
        digests.get("md5"),
        int(match[1]) if match is not None and in_bytes else None,
        source,
    )


def _local(url: str, name: str, folder: Path) -> str | None:
    """The path that a URL stands for: itself if it is relative, for one on the web the file of that
    name beside the metadata."""
    if not _SCHEME.match(url):
        plain = unquote(url)
        return (
            plain
            if plain != url and not os.path.exists(folder / url) and os.path.exists(folder / plain)
            else url
        )
    if not url.lower().startswith(("http:", "https:")):
        return None
    try:
        last = unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError:
        last = ""
    return next(
        (
            one
            for one in (name, last)
            if one not in ("", ".", "..") and "/" not in one and os.path.exists(folder / one)
        ),
        None,
    )


def _digests(entry: _Entry, found: Found) -> dict[str, str]:
    """The digests of one FileObject that can be one, by algorithm; the first that cannot is a
    problem."""
    good: dict[str, str] = {}
    for key in (
        key for key, value in entry.fields.items() if value is not None and _is_digest_name(key)
    ):
        digits = (
            str(entry.fields[key]).strip().lower().removeprefix(f"{key.lower()}:")
            if type(entry.fields[key]) in (str, int)
            else ""
        )
        wrong = wrong_digest(key.lower(), digits)
        if wrong:
            found.fault(entry.line(key), f"{entry.label}: {wrong}", _COMPUTE, "digest")
            return good
        good[key.lower()] = digits
    if good and not good.keys() & {"sha256", "md5"}:
        message = f"{entry.label} has only {', '.join(good)}, which is not verified here"
        found.fault(entry.line(next(iter(good))), message, _COMPUTE)
    return good


def _require_container(entry: _Entry, known: set[str], found: Found) -> None:
    """What lies inside a file of this distribution is covered by that file's digest; anything else
    has none."""
    containers = _listed(entry.fields.get("containedIn"))
    if not containers:
        message = f"FileSet {entry.label} has no digest, so its files cannot be verified"
        found.fault(
            entry.line("@type"), message, "declare their folder in the spec, with its sha256"
        )
    for item in containers:
        container = item.get("@id") if isinstance(item, dict) else item
        if not isinstance(container, str) or not {container, container.rpartition("#")[2]} & known:
            shown = quoted(container) if isinstance(container, str) else "what is not a name"
            message = f"{entry.label} is contained in {shown}, which is no FileObject of this file"
            found.fault(
                entry.line("containedIn", container if isinstance(container, str) else ""),
                message,
                "give the container a FileObject with a `sha256`",
            )
            return


def _is_digest_name(name: str) -> bool:
    return name.lower() in DIGITS or _DIGEST_NAME.fullmatch(name) is not None


def _bare(name: str) -> str:
    """A JSON-LD name without its prefix or namespace: `sc:sha256` and `https://schema.org/sha256`
    are `sha256`."""
    return name if name.startswith("@") else re.split(r"[:/#]", name)[-1]


def _types(entry: object) -> set[str]:
    return (
        {_bare(name) for name in _listed(entry.get("@type")) if isinstance(name, str)}
        if isinstance(entry, dict)
        else set()
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
