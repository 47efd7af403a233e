"""A requirements file in pip's hash-checking mode, and the files that it includes, as entries of a
lock. The files come from the checkout and are untrusted: sizes and counts are bounded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from repro_gate.files import Unreadable, read_text

MAX_BYTES = 32 * 1024 * 1024
MAX_FILES = 50  # that one requirements file includes
MAX_LINES = 500_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(.+)")
_REPOSITORY = re.compile(r"(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_HASH = re.compile(r"--hash(?:=|\s+)(\S+)")


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a lock as it stands in the file. `hashes` are `algorithm:hex`, one for each
    file, empty text where a file has none; `commit` and `folder` are set where the entry is a git
    repository or a folder."""

    name: str = ""
    version: str | None = None
    place: str
    hashes: tuple[str, ...] = ()
    marker: str = ""
    commit: str | None = None
    folder: str | None = None
    fault: str = ""


@dataclass
class Reading:
    """The requirements files read so far, by their paths in the checkout, and how many lines they
    had."""

    root: Path
    files: list[str] = field(default_factory=list)
    lines: int = 0


def read_requirements(path: Path, reading: Reading) -> Iterator[Entry]:
    """The entries of a requirements file and of those that it includes. `-c`, indexes and the like
    pin nothing; what pip refuses under `--require-hashes` (an editable, a repository, a range of
    versions) is a fault. Raises LockfileError."""
    shown = os.path.relpath(path, reading.root)
    reading.files.append(shown)
    try:
        text = read_text(path, reading.root, MAX_BYTES)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    for number, line in _logical(text):
        reading.lines += 1
        place = f"{shown}:{number}"
        if reading.lines > MAX_LINES:
            raise LockfileError(f"{place}: more than {MAX_LINES} lines")
        if include := _INCLUDE.fullmatch(line):
            yield from _included(include[1].strip(), path.parent, place, reading)
        elif editable := _EDITABLE.fullmatch(line):
            yield Entry(place=place, fault=f"{editable[1][:80]} is editable, which has no hash")
        elif not line.startswith("-"):
            yield _requirement(line, place)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined and cut as pip does it, without comments and blank ones; numbered by their first
    line."""
    held, start = list[str](), 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start, comment = start if held else number, line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            held.append(line.rstrip("\\"))
            continue
        whole = _COMMENT.sub("", "".join([*held, f" {line}" if comment else line])).strip()
        held = []
        if whole:
            yield start, whole


def _included(name: str, folder: Path, place: str, reading: Reading) -> Iterator[Entry]:
    if name.lower().startswith(("http:", "https:", "ftp:", "file:")):
        yield Entry(
            place=place,
            fault=f"{name[:80]} is read from a URL, which may give another file tomorrow",
        )
    elif os.path.relpath(folder / name, reading.root) not in reading.files:
        if len(reading.files) >= MAX_FILES:
            raise LockfileError(f"{place}: includes more than {MAX_FILES} files")
        try:
            yield from read_requirements(folder / name, reading)
        except LockfileError as error:
            yield Entry(place=place, fault=f"an include that cannot be used: {error}")


def _requirement(line: str, place: str) -> Entry:
    """One line. Raises LockfileError for what is no requirement."""
    text, *options = re.split(r"(?<!\S)(?=--)", line, maxsplit=1)
    text, hashes = " ".join(text.split()), tuple(_HASH.findall(options[0] if options else ""))
    try:
        wanted = Requirement(text if len(text) <= MAX_REQUIREMENT else "")
    except (InvalidRequirement, RecursionError):
        if len(text) <= MAX_REQUIREMENT and (text.startswith((".", "/")) or "://" in text):
            return Entry(place=place, fault=f"{text[:80]} has no name: write `NAME @ URL`")
        raise LockfileError(f"{place}: `{text[:80]}` is no requirement") from None
    entry = Entry(name=wanted.name, place=place, marker=str(wanted.marker or ""), hashes=hashes)
    if wanted.url is None:
        pins = [
            item.version
            for item in wanted.specifier
            if item.operator in ("==", "===") and not item.version.endswith(".*")
        ]
        if len(pins) == len(wanted.specifier) == 1:
            return replace(entry, version=pins[0])
        return replace(entry, fault=f"`{str(wanted.specifier) or 'any version'}` is no one version")
    if _REPOSITORY.match(wanted.url):
        return replace(
            entry, fault=f"{wanted.url[:80]} is a repository, which pip cannot check by hash"
        )
    try:
        parts = urlsplit(wanted.url)
        file = unquote(parts.path.rpartition("/")[2])
        version = str(
            (parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file))[1]
        )
    except ValueError:  # its name says no version
        return entry
    in_url = tuple(
        part.replace("=", ":", 1)
        for part in parts.fragment.split("&")
        if re.match(r"sha\d+=", part)
    )
    return replace(entry, version=version, hashes=hashes or in_url)
