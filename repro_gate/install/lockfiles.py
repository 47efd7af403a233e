"""What a lockfile pins and what it leaves open, whichever tool wrote it.
The file comes from the checkout and is untrusted: sizes, counts and depths are bounded, and whatever is wrong is a LockfileError."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from repro_gate.files import Unreadable, is_inside, parse_toml, read_text

MAX_BYTES = 32 * 1024 * 1024
MAX_PACKAGES = 50_000
MAX_FILES = 50  # that one requirements file includes
MAX_LINES = 500_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
KINDS = "requirements.txt or requirements.lock, uv.lock, poetry.lock, pdm.lock and pylock.toml"
_NAMES = {
    **{name: name for name in ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")},
    "pylock.*.toml": "pylock.toml",
    "*.txt": "requirements",
    "*.lock": "requirements",
}
# Hex digits of the digests that a tool may pin a file with. MD5 and SHA-1 can be forged, so they pin nothing.
_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128, "sha3_256": 64, "sha3_384": 96, "sha3_512": 128, "blake2b": 128, "blake2s": 64}
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)
_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(.+)")
_REPOSITORY = re.compile(r"(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9._-]+)")
_HASH = re.compile(r"--hash(?:=|\s+)(\S+)")
_CHOSEN = re.compile(r"\b(?:extra|extras|dependency_groups)\b")  # markers that a person's choice decides, not the machine
Table = Mapping[str, Any]


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True)
class Pin:
    """One distribution of the lock: its normalised name, and its version (None where a commit or a URL pins it, or, `open`, nothing)."""

    name: str
    version: str | None
    place: str  # `path:line`
    marker: str = ""
    open: bool = False


@dataclass(frozen=True)
class Lock:
    """A lockfile. `faults` are `path:line: what is not pinned`; `files` all files that were read, by their paths in the checkout; `own`
    the names of distributions whose code lies in the checkout."""

    kind: str
    pins: tuple[Pin, ...]
    faults: tuple[str, ...]
    files: tuple[str, ...]
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One entry as it stands in the file. `hashes` are `algorithm:hex`, one for each file, empty text where a file has none; `commit` and
    `folder` are set where the entry is a git repository or a folder."""

    name: str = ""
    version: str | None = None
    place: str
    hashes: tuple[str, ...] = ()
    marker: str = ""
    commit: str | None = None
    folder: str | None = None
    fault: str = ""


@dataclass
class _Reading:
    """The requirements files read so far, by their paths in the checkout, and how many lines they had."""

    root: Path
    files: list[str] = field(default_factory=list)
    lines: int = 0


def kind_of(name: str) -> str | None:
    """The format that a file of this name has; None for a name that no format has."""
    if name == "Pipfile.lock":
        return None
    return next((kind for pattern, kind in _NAMES.items() if fnmatchcase(name, pattern)), None)


def read_lock(path: Path, root: Path) -> Lock:
    """What the lockfile at `path` pins; it and all that it includes must lie in the checkout at `root`. Raises LockfileError."""
    shown, kind = os.path.relpath(path, root), kind_of(path.name)
    if kind is None:
        raise LockfileError(f"{shown}: is not a lockfile that the gate reads; it reads {KINDS}")
    reading = _Reading(root)
    entries = _requirements(path, reading) if kind == "requirements" else _toml(path, root, shown, kind)
    pins, faults, own = list[Pin](), list[str](), set[str]()
    for count, entry in enumerate(entries):
        if count >= MAX_PACKAGES:
            raise LockfileError(f"{shown}: more than {MAX_PACKAGES} packages")
        fault, name = entry.fault or _fault(entry, path.parent, root), str(canonicalize_name(entry.name))
        if fault:
            faults.append(f"{entry.place}: {entry.name}: {fault}" if name else f"{entry.place}: {fault}")
        if name and entry.folder is not None:
            own.add(name)
        elif name:
            pins.append(Pin(name, entry.version, entry.place, entry.marker, bool(fault) and entry.version is None))
    if not pins and not own and not faults:
        raise LockfileError(f"{shown}: pins nothing")
    return Lock(kind, tuple(pins), tuple(faults), tuple(reading.files or [shown]), frozenset(own))


def strong(digest: str) -> bool:
    """Whether `algorithm:hex` is a digest that pins a file."""
    algorithm, _, figure = digest.partition(":")
    return bool(re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS.get(algorithm.lower(), 1)}}}", figure)) and algorithm.lower() in _DIGITS


def same_version(locked: str, installed: str) -> bool:
    """Whether two versions are the same release; the local label of the installed one counts where the locked one has a label."""
    try:
        wanted, found = Version(locked), Version(installed)
    except InvalidVersion:
        return locked.strip().lower() == installed.strip().lower()
    return wanted == found if wanted.local else wanted == Version(found.public)


def applies(marker: str, python: str | None) -> bool:
    """Whether a lock's marker holds on this machine under the training's Python (`3.12.7`). What cannot be judged holds."""
    if not marker or _CHOSEN.search(marker):
        return True
    environment = {} if python is None else {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    try:
        return Marker(marker).evaluate(environment)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _fault(entry: _Entry, base: Path, root: Path) -> str:
    """What is not pinned about an entry; empty where it is pinned."""
    if not entry.name:
        return "a package without a name"
    if entry.folder is not None:
        return "" if "\0" not in entry.folder and is_inside(base / entry.folder, root) else "its folder lies outside the checkout"
    if entry.commit is not None:
        return "" if _COMMIT.fullmatch(entry.commit) else "a repository at no commit"
    if not entry.hashes:
        return "no hash" if entry.version else "neither a version nor a hash"
    weak = next((digest for digest in entry.hashes if not strong(digest)), None)
    if weak is None:
        return ""
    return f"{weak[:80]} is not a digest that pins a file" if weak else "a file of it has no hash"


def _toml(path: Path, root: Path, shown: str, kind: str) -> list[_Entry]:
    """The packages of a TOML lockfile. tomllib keeps no lines, so headers are counted; where they do not add up, no place has a line."""
    key = "packages" if kind == "pylock.toml" else "package"
    try:
        text = read_text(path, root, MAX_BYTES)
        document = parse_toml(text)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise LockfileError(f"{shown}: `{key}` is not a list of tables")
    header = re.compile(rf"\s*\[\[\s*{key}\s*\]\]")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if header.match(line)]
    places = [f"{shown}:{line}" for line in lines] if len(lines) == len(tables) else [shown] * len(tables)
    if kind == "pylock.toml":
        return _pylock(document, places, shown)
    apart = _table(_table(document.get("metadata")).get("files"))  # where poetry 1 and pdm 2.7 kept all hashes
    entries = [_of_tool(table, place, apart) for table, place in zip(tables, places, strict=True)]
    hashed = {(entry.name, entry.version) for entry in entries if entry.hashes}
    return [  # pdm's `black[jupyter]` stands beside `black`, in some versions without files of its own
        entry
        for entry, table in zip(entries, tables, strict=True)
        if entry.hashes or not isinstance(table.get("extras"), list) or (entry.name, entry.version) not in hashed
    ]


def _of_tool(table: Table, place: str, apart: Table) -> _Entry:
    """One `[[package]]` of uv, poetry or pdm, whose keys do not collide."""
    name, version, source = _text(table.get("name")), _text(table.get("version")), _table(table.get("source"))
    files = table.get("files") or apart.get(name) or apart.get(f"{name} {version}") or []
    listed = [*files, table.get("sdist"), *(table.get("wheels") or [])] if isinstance(files, list) else [{}]
    commit = folder = None
    if "git" in source:  # uv
        commit = str(source["git"]).rpartition("#")[2]
    elif source.get("type") == "git":  # poetry
        commit = _text(source.get("resolved_reference"))
    elif any(key in table for key in ("git", "hg", "svn", "bzr")):  # pdm
        commit = _text(table.get("revision"))
    elif source.get("type") == "directory":
        folder = str(source.get("url"))
    else:
        where = {key: source[key] for key in ("editable", "virtual", "directory") if key in source} or ({} if files else table)
        folder = next((str(where[key]) for key in ("editable", "virtual", "directory", "path") if key in where), None)
    hashes = tuple(_text(_table(file).get("hash")) for file in listed if file is not None)
    marker = _text(table.get("markers")) or _text(table.get("marker"))
    return _Entry(name=name, version=version or None, place=place, hashes=hashes, marker=marker, commit=commit, folder=folder)


def _pylock(document: dict[str, Any], places: list[str], shown: str) -> list[_Entry]:
    """The packages of a pylock.toml, as PEP 751 defines it."""
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError  # 20 ms, for this format alone

    try:
        packages = Pylock.from_dict(document).packages
    except PylockUnsupportedVersionError as error:
        raise LockfileError(f"{shown}: {error}; PEP 751 describes version 1.0") from None
    except (PylockValidationError, RecursionError) as error:
        raise LockfileError(f"{shown}: does not follow PEP 751: {str(error)[:300]}") from None
    entries = []
    for item, place in zip(packages, places, strict=True):
        files = [file for file in (item.sdist, *(item.wheels or ()), item.archive) if file is not None]
        hashes = [[f"{algorithm}:{figure}" for algorithm, figure in file.hashes.items()] for file in files]
        best = tuple(next((digest for digest in file if strong(digest)), file[0]) for file in hashes)
        marker, version = str(item.marker or ""), str(item.version) if item.version else None
        commit, folder = item.vcs.commit_id if item.vcs else None, item.directory.path if item.directory else None
        entries.append(_Entry(name=item.name, version=version, place=place, hashes=best, marker=marker, commit=commit, folder=folder))
    return entries


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _requirements(path: Path, reading: _Reading) -> Iterator[_Entry]:
    """The entries of a requirements file in pip's hash-checking mode and of those that it includes. `-c`, indexes and the like pin nothing;
    what pip refuses under `--require-hashes` (an editable, a repository, a range of versions) is a fault."""
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
            yield _Entry(place=place, fault=f"{editable[1][:80]} is editable, which has no hash")
        elif not line.startswith("-"):
            yield _requirement(line, place)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined and cut as pip does it, without comments and blank ones; numbered by their first line."""
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


def _included(name: str, folder: Path, place: str, reading: _Reading) -> Iterator[_Entry]:
    if name.lower().startswith(("http:", "https:", "ftp:", "file:")):
        yield _Entry(place=place, fault=f"{name[:80]} is read from a URL, which may give another file tomorrow")
    elif os.path.relpath(folder / name, reading.root) not in reading.files:
        if len(reading.files) >= MAX_FILES:
            raise LockfileError(f"{place}: includes more than {MAX_FILES} files")
        try:
            yield from _requirements(folder / name, reading)
        except LockfileError as error:
            yield _Entry(place=place, fault=f"an include that cannot be used: {error}")


def _requirement(line: str, place: str) -> _Entry:
    """One line. Raises LockfileError for what is no requirement, wheel, source archive, repository or folder."""
    text, *options = re.split(r"(?<!\S)(?=--)", line, maxsplit=1)
    text, hashes = " ".join(text.split()), tuple(_HASH.findall(options[0] if options else ""))
    if len(text) > MAX_REQUIREMENT:
        raise LockfileError(f"{place}: `{text[:80]}` … is no requirement")
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        wanted = None
    url = text if wanted is None else wanted.url
    name, marker = (wanted.name, str(wanted.marker or "")) if wanted else ("", "")
    if url is None and wanted is not None:
        pins = [item.version for item in wanted.specifier if item.operator in ("==", "===") and not item.version.endswith(".*")]
        if len(pins) == len(wanted.specifier) == 1:
            return _Entry(name=name, version=pins[0], place=place, hashes=hashes, marker=marker)
        fault = f"`{str(wanted.specifier) or 'any version'}` is no one version"
        return _Entry(name=name, place=place, hashes=hashes, marker=marker, fault=fault)
    assert url is not None
    if _REPOSITORY.match(url):
        egg = _EGG.search(url)
        fault = f"{url[:80]} is a repository, which pip cannot check by hash"
        return _Entry(name=name or (egg[1] if egg else ""), place=place, marker=marker, fault=fault)
    found, in_url = _archive(url)
    if found is None and wanted is None:
        if text.startswith((".", "/")) or "://" in text:
            return _Entry(place=place, fault=f"{text[:80]} is no wheel or source archive that a hash could pin")
        raise LockfileError(f"{place}: `{text[:80]}` is no requirement")
    version = found[1] if found else None
    return _Entry(name=name or (found[0] if found else ""), version=version, place=place, hashes=hashes or in_url, marker=marker)


def _archive(url: str) -> tuple[tuple[str, str] | None, tuple[str, ...]]:
    """Name and version from the file name of a wheel or source archive, and the hashes of its fragment."""
    try:
        parts = urlsplit(url)
        file = unquote(parts.path.rsplit("/", 1)[-1])
        name, version, *_ = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None, ()
    except ValueError:
        return None, ()
    return (str(name), str(version)), tuple(part.replace("=", ":", 1) for part in parts.fragment.split("&") if re.match(r"sha\d+=", part))
