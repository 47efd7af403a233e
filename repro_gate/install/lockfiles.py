"""What a lockfile pins and what it leaves open: a requirements file, `pylock.toml` or `uv.lock`.
It comes from the checkout and is untrusted: size, count and depth are bounded, and whatever is
wrong with it is a LockfileError."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.markers import Marker, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from repro_gate.files import Unreadable, is_inside, parse_toml, read_text

MAX_BYTES = 32 * 1024 * 1024
MAX_PACKAGES = 50_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
REMEDY = "write it with `uv pip compile --generate-hashes`, `uv export` or `uv lock`"
_KINDS = re.compile(
    r"(?P<uv>uv\.lock)|(?P<pylock>pylock(?:\..+)?\.toml)"
    r"|(?P<requirements>(?!(?:poetry|pdm|Pipfile)\.lock).+\.(?:txt|lock))"
)
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"--hash(?:=|\s+)(\S+)")
# MD5 and SHA-1 can be forged, so they pin nothing.
_STRONG = re.compile(
    r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})", re.IGNORECASE
)
_COMMIT = re.compile(r"(?:.*#)?(?:[0-9a-f]{40}|[0-9a-f]{64})", re.IGNORECASE)
_FOLDERS = ("editable", "virtual", "directory")  # in uv.lock
_HEADER = re.compile(r"\s*\[\[\s*packages?\s*\]\]")


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One entry of a lock."""

    place: str  # `path:line`
    name: str = ""  # normalised; empty for an option
    version: str | None = None  # None: a commit or a URL pins it, or nothing
    fault: str = ""  # why it is not pinned
    marker: str = ""
    # with hashes, as one line to install it by; empty: it cannot be
    requirement: str = ""
    own: bool = False  # its code lies in the checkout

    def described(self, why: str) -> str:
        """Return `path:line: name: why`."""
        return f"{self.place}: {self.name or 'an option'}: {why}"


@dataclass(frozen=True)
class Lock:
    """A lockfile: its format, its path in the checkout, and its entries."""

    kind: str
    path: str
    pins: tuple[Pin, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Return `path:line: name: why it is not pinned` of each entry that is open."""
        return tuple(pin.described(pin.fault) for pin in self.pins if pin.fault)


class _File(msgspec.Struct):
    hash: str = ""  # uv.lock
    hashes: dict[str, str] = {}  # pylock.toml


class _Package(msgspec.Struct):
    """A package of uv.lock, which has `source`, or of pylock.toml."""

    name: str
    version: str | None = None
    marker: str = ""
    source: dict[str, Any] = {}
    vcs: dict[str, Any] = {}
    directory: dict[str, Any] = {}
    sdist: _File | None = None
    archive: _File | None = None
    wheels: tuple[_File, ...] = ()


class _Document(msgspec.Struct, rename="kebab"):
    lock_version: Literal["1.0"] = "1.0"  # of pylock.toml, by PEP 751
    package: tuple[_Package, ...] = ()  # uv.lock
    packages: tuple[_Package, ...] = ()  # pylock.toml


def kind_of(name: str) -> str | None:
    """Return the format that a file of this name has; None for a name that no format has."""
    match = _KINDS.fullmatch(name)
    return match and match.lastgroup


def read_lock(path: Path, root: Path) -> Lock:
    """Return what the lockfile at `path` pins; it must lie in the checkout at `root`. Raises
    LockfileError."""
    name = os.path.relpath(path, root)
    kind = kind_of(path.name)
    if kind is None:
        raise LockfileError(
            f"{name}: is no requirements, pylock.toml or uv.lock: {REMEDY}"
        )
    text = text_of(path, root)
    try:
        is_toml = kind != "requirements"
        entries = _packages(text, path, root) if is_toml else _requirements(text, name)
        pins = tuple(islice(entries, MAX_PACKAGES + 1))
    except (Unreadable, ValueError) as error:
        raise LockfileError(f"{name}: {error}") from None
    if len(pins) > MAX_PACKAGES:
        raise LockfileError(f"{name}: more than {MAX_PACKAGES} packages")
    if not any(pin.name or pin.fault for pin in pins):
        raise LockfileError(f"{name}: pins nothing")
    return Lock(kind, name, pins)


def text_of(path: Path, root: Path) -> str:
    """Return the text of a file of the checkout at `root`. Raises LockfileError."""
    try:
        return read_text(path, root, MAX_BYTES)
    except Unreadable as error:
        raise LockfileError(f"{os.path.relpath(path, root)}: {error}") from None


def same_version(locked: str, installed: str) -> bool:
    """Return whether two versions are the same release; the local label of the installed one counts
    if the locked one has a label."""
    try:
        one = Version(locked)
        other = Version(installed)
    except ValueError:
        return locked.strip().lower() == installed.strip().lower()
    return one == (other if one.local else Version(other.public))


def applies(marker: str, python: str | None) -> bool:
    """Return whether a lock's marker holds on this machine under the training's Python (`3.12.7`).
    What cannot be judged, or is a person's choice (an extra), holds."""
    python = python or platform.python_version()
    known = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    try:
        return not marker or Marker(marker).evaluate(known, context="requirement")
    except (UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _requirements(text: str, name: str) -> Iterator[Pin]:
    parts = list[str]()
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = _COMMENT.sub("", line).rstrip()
        parts.append(bare.removesuffix("\\"))
        if bare.endswith("\\"):
            continue
        if whole := "".join(parts).strip():
            yield _requirement(whole, f"{name}:{start}")
        parts = []
        start = number + 1


def _requirement(line: str, place: str) -> Pin:
    """Return the entry that one logical line is. Raises LockfileError for what is none."""
    if line.startswith(("-r", "--requirement")):
        problem = f"`{line[:80]}`: other files are not read"
        raise LockfileError(f"{place}: {problem}: {REMEDY}")
    if line.startswith(("-e", "--editable")):
        return Pin(place=place, fault=f"`{line[:80]}` has no hash")
    if line.startswith("-"):
        return Pin(place=place)
    text, *options = re.split(r"(?<!\S)(?=--)", line, maxsplit=1)
    text = text.strip()
    try:
        parsed = Requirement(text if len(text) <= MAX_REQUIREMENT else "")
    except (ValueError, RecursionError):
        problem = f"`{text[:80]}` is no requirement"
        raise LockfileError(f"{place}: {problem}: {REMEDY}") from None
    hashes = _HASH.findall("".join(options))
    specifier = str(parsed.specifier)
    exact = re.fullmatch(r"===?([^,*]+)", specifier)
    fault = _unpinned(hashes)
    if parsed.url is not None and not parsed.url.startswith(("https://", "http://")):
        fault = f"{parsed.url[:80]} is a path or a repository, which has no hash"
    elif parsed.url is None and exact is None:
        fault = f"`{specifier or 'any version'}` is no one version"
    line = " ".join([*str(parsed).split(), *(f"--hash={digest}" for digest in hashes)])
    return Pin(
        name=str(canonicalize_name(parsed.name)),
        version=exact[1] if exact else None,
        place=place,
        fault=fault,
        marker=str(parsed.marker or ""),
        requirement="" if fault else line,
    )


def _packages(text: str, path: Path, root: Path) -> Iterator[Pin]:
    document = msgspec.convert(parse_toml(text), _Document)
    packages = document.package + document.packages
    # tomllib keeps no lines, so headers are counted; if they do not add up, no place has a line
    numbered = enumerate(text.split("\n"), 1)
    lines = [f":{number}" for number, line in numbered if _HEADER.match(line)]
    lines = lines if len(lines) == len(packages) else [""] * len(packages)
    for item, line in zip(packages, lines, strict=True):
        place = os.path.relpath(path, root) + line
        commit = item.vcs.get("commit-id") or item.source.get("git")
        folders = (*map(item.source.get, _FOLDERS), item.directory.get("path"))
        folder = next(filter(None, folders), None)
        files = filter(None, (item.sdist, item.archive, *item.wheels))
        digests = [*map(_digest, files)]
        fault = ""
        if folder is not None:
            if not is_inside(path.parent / str(folder), root):
                fault = "its folder lies outside"
        elif commit is not None:
            if not _COMMIT.fullmatch(str(commit)):
                fault = "a repository at no commit"
        elif item.version:
            marker = f" ; {item.marker}" if item.marker else ""
            hashes = "".join(f" --hash={digest}" for digest in digests)
            yield _requirement(f"{item.name}=={item.version}{marker}{hashes}", place)
            continue
        else:
            fault = _unpinned(digests)
        yield Pin(
            name=str(canonicalize_name(item.name)),
            version=item.version,
            place=place,
            fault=fault,
            own=folder is not None,
        )


def _digest(file: _File) -> str:
    """Return the first strong digest of a file, else another one."""
    digests = [file.hash or "none", *(":".join(item) for item in file.hashes.items())]
    return next(filter(_STRONG.fullmatch, digests), digests[-1])


def _unpinned(digests: list[str]) -> str:
    """Return why files with these digests are not pinned; empty if they are."""
    weak = next((digest for digest in digests if not _STRONG.fullmatch(digest)), None)
    if weak is None:
        return "" if digests else "no hash"
    return f"{weak[:80]} is not a digest that pins a file"
