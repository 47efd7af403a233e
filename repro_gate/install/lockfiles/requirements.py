"""requirements.txt and its like in pip's hash-checking mode: `name==version --hash=sha256:…` on each line.

Lines are joined and comments cut as pip does it. `-r` is followed inside the checkout; `-c`, indexes and the like pin nothing and are
passed over. What pip refuses under `--require-hashes` (an editable, a repository, a range of versions) is a fault.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from repro_gate.files import Unreadable, read_text
from repro_gate.install.lockfiles.model import MAX_BYTES, Lock, LockfileError, Package, build_lock

MAX_FILES = 50
MAX_LINES = 500_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
_COMMENT = re.compile(r"(^|\s)#.*$")
_WHOLE_COMMENT = re.compile(r"\s*#")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(.+)")
_REPOSITORY = re.compile(r"(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9._-]+)")


@dataclass
class _Reading:
    """One reading: the files so far, by their paths in the checkout, and how many lines they had."""

    root: Path
    files: list[str] = field(default_factory=list)
    lines: int = 0


def read(path: Path, root: Path) -> Lock:
    """A requirements file and those that it includes. Raises LockfileError where the first one cannot be read or holds nothing."""
    reading = _Reading(root)
    packages = list(_packages(path, reading))
    return build_lock("requirements", packages, reading.files, path.parent, root)


def _packages(path: Path, reading: _Reading) -> Iterator[Package]:
    shown = os.path.relpath(path, reading.root)
    reading.files.append(shown)
    try:
        text = read_text(path, reading.root, MAX_BYTES)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    for number, line in _logical(text):
        reading.lines += 1
        if reading.lines > MAX_LINES:
            raise LockfileError(f"{shown}:{number}: more than {MAX_LINES} lines")
        place = f"{shown}:{number}"
        if include := _INCLUDE.fullmatch(line):
            yield from _included(include[1].strip(), path.parent, place, reading)
        elif editable := _EDITABLE.fullmatch(line):
            yield Package("", None, place, fault=f"{editable[1][:80]} is editable, which has no hash")
        elif not line.startswith("-"):
            yield _package(line, place)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with what follows their continuations, without comments and blank ones; numbered by their first line."""
    held: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        start = start if held else number
        if line.endswith("\\") and not _WHOLE_COMMENT.match(line):
            held.append(line.rstrip("\\"))
            continue
        whole = _COMMENT.sub("", "".join([*held, f" {line}" if _WHOLE_COMMENT.match(line) else line])).strip()
        held = []
        if whole:
            yield start, whole
    if held and (rest := _COMMENT.sub("", "".join(held)).strip()):
        yield start, rest


def _included(name: str, folder: Path, place: str, reading: _Reading) -> Iterator[Package]:
    target = folder / name
    shown = os.path.relpath(target, reading.root)
    if name.lower().startswith(("http:", "https:", "ftp:", "file:")):
        yield Package("", None, place, fault=f"{name[:80]} is read from a URL, which may give another file tomorrow")
    elif shown in reading.files:
        return
    elif len(reading.files) >= MAX_FILES:
        raise LockfileError(f"{place}: includes more than {MAX_FILES} files")
    else:
        try:
            yield from _packages(target, reading)
        except LockfileError as error:
            yield Package("", None, place, fault=f"an include that cannot be used: {error}")


def _package(line: str, place: str) -> Package:
    words = line.split()
    options = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
    text = " ".join(words[:options])
    hashes = tuple(_hashes(words[options:]))
    if len(text) > MAX_REQUIREMENT:
        raise LockfileError(f"{place}: `{text[:80]}` … is no requirement")
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return _bare(text, place, hashes)
    marker = str(wanted.marker) if wanted.marker else ""
    if wanted.url is not None and _REPOSITORY.match(wanted.url):
        return Package(wanted.name, None, place, marker=marker, fault=_no_hash_of(wanted.url))
    if wanted.url is not None:
        name_and_version = _archive(wanted.url)
        version = name_and_version[1] if name_and_version else None
        return Package(wanted.name, version, place, hashes or tuple(_fragment(wanted.url)), marker)
    pins = [item for item in wanted.specifier if item.operator in ("==", "===") and not item.version.endswith(".*")]
    if len(pins) != 1 or len(wanted.specifier) != 1:
        return Package(wanted.name, None, place, hashes, marker, fault=f"`{str(wanted.specifier) or 'any version'}` is no one version")
    return Package(wanted.name, pins[0].version, place, hashes, marker)


def _bare(text: str, place: str, hashes: tuple[str, ...]) -> Package:
    """A line without a name: the path or URL of a wheel or source archive, which pip takes where a hash stands beside it; a repository; a
    folder. Raises LockfileError for what is none of these."""
    if _REPOSITORY.match(text):
        egg = _EGG.search(text)
        return Package(egg[1] if egg else "", None, place, fault=_no_hash_of(text))
    found = _archive(text)
    if found is not None:
        return Package(found[0], found[1], place, hashes or tuple(_fragment(text)))
    if text.startswith((".", "/")) or "://" in text:
        return Package("", None, place, fault=f"{text[:80]} is no wheel or source archive that a hash could pin")
    raise LockfileError(f"{place}: `{text[:80]}` is no requirement")


def _no_hash_of(url: str) -> str:
    return f"{url[:80]} is a repository, which pip cannot check by hash"


def _hashes(options: list[str]) -> Iterator[str]:
    for index, word in enumerate(options):
        if word.startswith("--hash="):
            yield word.removeprefix("--hash=")
        elif word == "--hash" and index + 1 < len(options):
            yield options[index + 1]


def _fragment(url: str) -> Iterator[str]:
    fragment = _split(url)[1]
    yield from (part.replace("=", ":", 1) for part in fragment.split("&") if re.match(r"sha\d+=", part))


def _archive(url: str) -> tuple[str, str] | None:
    """Name and version from the file name of a wheel or source archive."""
    file = unquote(_split(url)[0].rsplit("/", 1)[-1])
    try:
        name, version, *_ = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return str(name), str(version)


def _split(url: str) -> tuple[str, str]:
    """Path and fragment. A URL that cannot be taken apart has neither."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.path, parts.fragment
