"""Croissant metadata (JSON-LD) as declarations of data: the local FileObjects of a `distribution`.
 Follows Croissant 1.0 as https://docs.mlcommons.org/croissant describes it: `contentUrl` relative to the
metadata's folder, `sha256`, `md5`, `contentSize`. A file that is fetched from the web counts if it lies beside the metadata under its own
name; what is `containedIn` another file is covered by that one's digest. Looks whether files are there, reads none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from repro_gate.data.stated import DIGITS, MAX_ITEMS, VERIFIED, Fault, Stated, is_digest_name, quoted, wrong_digest

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],\n]')
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*([a-zA-Z]*)")
_POWERS = {letter: number for number, letter in enumerate("kmgtp", start=1)}
_COMPUTE = "state what `sha256sum` prints for the file"

Lines = Mapping[tuple[object, ...], int]


@dataclass
class _Reading:
    """One metadata file under way. `files` and `sets` are the entries of its distribution, by place."""

    folder: Path
    lines: Lines
    known: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)

    def line(self, number: int, key: str = "") -> int:
        return self.lines.get((number, key)) or self.lines.get((number,)) or 1

    def fault(self, line: int, message: str, remedy: str, kind: str = "declaration") -> None:
        self.faults.append(Fault(line, message, remedy, kind))


def read_croissant(text: str, folder: Path) -> tuple[list[Stated], list[Fault]] | None:
    """What Croissant metadata states about its files, and what is wrong with it; None: this is other JSON, so plain data.

    `folder` is where the metadata lies.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "@context" not in data:
        return None
    data = {_bare(key): value for key, value in data.items()}
    entries = data.get("distribution")
    entries = entries if isinstance(entries, list) else [entries]
    told = any("mlcommons.org/croissant" in str(value) for value in _listed(data.get("conformsTo")))
    if not told and not any(_types(entry) & {"FileObject", "FileSet"} for entry in entries):
        return None
    reading = _Reading(folder, _lines(text))
    if len(entries) > MAX_ITEMS:
        reading.fault(1, f"its distribution has more than {MAX_ITEMS:,} entries", "declare the folder that holds the files")
        return [], reading.faults
    found = [
        (number, {_bare(key): value for key, value in entry.items()}) for number, entry in enumerate(entries) if isinstance(entry, dict)
    ]
    files = [(number, entry) for number, entry in found if "FileObject" in _types(entry)]
    sets = [(number, entry) for number, entry in found if "FileSet" in _types(entry)]
    if not files and not sets:
        reading.fault(1, "its `distribution` names no file", "give each file a FileObject with `contentUrl` and `sha256`")
    reading.known = {str(entry[key]) for _, entry in files for key in ("@id", "name") if key in entry}
    for number, entry in sets:
        _require_container(number, entry, reading)
    return list(_files(files, reading)), reading.faults


def _files(files: list[tuple[int, dict[str, Any]]], reading: _Reading) -> Iterator[Stated]:
    for number, entry in files:
        if "containedIn" in entry:
            _require_container(number, entry, reading)
            continue
        url = entry.get("contentUrl")
        line = reading.line(number, "contentUrl")
        if not isinstance(url, str) or not url:
            reading.fault(line, f"FileObject {_label(entry)} has no contentUrl", "say where it lies, relative to this file")
            continue
        path = _local(url, entry, reading.folder)
        if path is None:
            message = f"{quoted(url)} is not on this machine, and no file of its name lies beside this one"
            reading.fault(line, message, "download it beside the metadata, or declare the files that the training reads in the spec")
            continue
        digests = _digests(number, entry, reading)
        at = next((reading.line(number, name) for name in VERIFIED if name in digests), line)
        size = _size(number, entry, reading)
        yield Stated(path, at, digests.get("sha256"), digests.get("md5"), size=size)


def _local(url: str, entry: dict[str, Any], folder: Path) -> str | None:
    """The path that a URL stands for: itself if it is relative, for one on the web the file of that name beside the metadata."""
    if not _SCHEME.match(url):
        plain = unquote(url)
        return plain if plain != url and not _is_there(folder, url) and _is_there(folder, plain) else url
    if not url.lower().startswith(("http:", "https:")):
        return None
    try:
        last = unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError:
        last = ""
    names = [str(entry.get("name", "")), last]
    return next((name for name in names if name not in ("", ".", "..") and "/" not in name and _is_there(folder, name)), None)


def _is_there(folder: Path, name: str) -> bool:
    try:
        return os.path.exists(folder / name)
    except ValueError:  # a NUL, or half a character
        return False


def _digests(number: int, entry: dict[str, Any], reading: _Reading) -> dict[str, str]:
    """The digests of one FileObject that can be verified, by algorithm."""
    stated = {
        name.lower(): str(value).strip().lower() for name, value in entry.items() if is_digest_name(name) and isinstance(value, (str, int))
    }
    good = dict[str, str]()
    for name, value in stated.items():
        digits = value.removeprefix(f"{name}:")
        wrong = wrong_digest(name, digits)
        if wrong:
            reading.fault(reading.line(number, name), f"{_label(entry)}: {wrong}", _COMPUTE, "digest")
        else:
            good[name] = digits
    if good and not any(name in good for name in VERIFIED):
        message = f"{_label(entry)} has only {', '.join(name for name in DIGITS if name in good)}, which is not verified here"
        reading.fault(reading.line(number, next(iter(good))), message, _COMPUTE)
    return good


def _require_container(number: int, entry: dict[str, Any], reading: _Reading) -> None:
    """What lies inside a file of this distribution is covered by that file's digest; anything else has none."""
    names = [str(item.get("@id", "")) if isinstance(item, dict) else str(item) for item in _listed(entry.get("containedIn"))]
    if not names:
        message = f"FileSet {_label(entry)} has no digest, so its files cannot be verified"
        reading.fault(reading.line(number), message, "declare their folder in the spec, with its sha256")
    for name in names:
        if name not in reading.known and name.rpartition("#")[2] not in reading.known:
            message = f"{_label(entry)} is contained in {quoted(name)}, which is no FileObject of this file"
            reading.fault(reading.line(number, "containedIn"), message, "give the container a FileObject with a `sha256`")


def _size(number: int, entry: dict[str, Any], reading: _Reading) -> tuple[int, int] | None:
    """Least and greatest number of bytes that `contentSize` can mean. `1.5 MB` is a rounded figure, of units of 1000 or 1024."""
    value = entry.get("contentSize")
    if value is None:
        return None
    match = _SIZE.fullmatch(re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", str(value).strip()))
    unit = match[3].lower() if match is not None else "?"
    power = _POWERS.get(unit[:1], 0) if unit[1:] in ("", "b", "ib") else None
    power = 0 if unit in ("", "b", "byte", "bytes") else power or None
    if match is None or power is None or isinstance(value, bool) or (power == 0 and (match[2] or "").strip("0")):
        message = f'{_label(entry)}: contentSize is "{quoted(value)}", wanted bytes such as `1024 B`, or `1.5 MB`'
        reading.fault(reading.line(number, "contentSize"), message, "state the file's size in bytes")
        return None
    figure, step = Fraction(f"{match[1]}.{match[2] or 0}"), Fraction(1, 10 ** len(match[2] or ""))
    if power == 0:
        return int(figure), int(figure)
    least, greatest = (1024 if "i" in unit else 1000) ** power, 1024**power
    return int((figure - step) * least), int((figure + step) * greatest) + 1


def _lines(text: str) -> Lines:
    """The line of each entry of the distribution (by its number) and of each key in it (by number and key). For text that is valid JSON."""
    lines: dict[tuple[object, ...], int] = {}
    path, line = list[str | int | None](), 1  # None: a key comes next
    for match in _TOKEN.finditer(text):
        part = match[0]
        if part == "\n":
            line += 1
        elif part in ("{", "["):
            if part == "{" and (place := _entry_place(path)) is not None:
                lines[(place,)] = line
            path.append(None if part == "{" else 0)
        elif part in ("}", "]"):
            path.pop()
        elif part == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif path and path[-1] is None:
            path[-1] = _bare(json.loads(part))
            if len(path) <= 3 and (place := _entry_place(path[:-1])) is not None:
                lines[place, path[-1]] = line
    return lines


def _entry_place(path: list[str | int | None]) -> int | None:
    """Which entry of the distribution a path is; a distribution that is not a list is its own first entry."""
    if path == ["distribution"]:
        return 0
    return path[1] if len(path) == 2 and path[0] == "distribution" and isinstance(path[1], int) else None


def _bare(name: str) -> str:
    """A JSON-LD name without its prefix or namespace: `sc:sha256` and `https://schema.org/sha256` are `sha256`."""
    return name if name.startswith("@") else re.split(r"[:/#]", name)[-1]


def _types(entry: object) -> set[str]:
    return {_bare(str(name)) for name in _listed(entry.get("@type"))} if isinstance(entry, dict) else set()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _label(entry: dict[str, Any]) -> str:
    return quoted(entry.get("name") or entry.get("@id") or "without a name")
