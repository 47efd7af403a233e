"""What a lockfile pins and what it leaves open: a requirements file, `pylock.toml` or `uv.lock`.
It comes from the checkout and is untrusted: size, count and depth are bounded, and whatever is
wrong with it is a LockfileError."""

from __future__ import annotations

import os
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

MAX_BYTES, MAX_PACKAGES = 32 * 1024 * 1024, 50_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
REMEDY = "write it with `uv pip compile --generate-hashes`, `uv export` or `uv lock`"
_KINDS = re.compile(
    r"(?P<uv>uv\.lock)|(?P<pylock>pylock(?:\..+)?\.toml)"
    r"|(?P<requirements>(?!(?:poetry|pdm|Pipfile)\.lock).+\.(?:txt|lock))"
)
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"--hash(?:=|\s+)(\S+)")
# MD5 and SHA-1 can be forged, so they pin nothing.
_STRONG = re.compile(r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)
_FOLDERS = ("editable", "virtual", "directory")  # in uv.lock
_HEADER = re.compile(r"\s*\[\[\s*packages?\s*\]\]")


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One entry of a lock."""

    name: str  # normalised; empty for an option
    version: str | None  # None: a commit or a URL pins it, or nothing
    place: str  # `path:line`
    marker: str = ""
    requirement: str = ""  # with hashes, as one line to install it by; empty: it cannot be
    fault: str = ""  # why it is not pinned
    own: bool = False  # its code lies in the checkout


@dataclass(frozen=True)
class Lock:
    """A lockfile: its format, its path in the checkout, and its entries."""

    kind: str
    path: str
    pins: tuple[Pin, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Return `path:line: name: why it is not pinned` of each entry that is open."""
        open_pins = (pin for pin in self.pins if pin.fault)
        return tuple(f"{pin.place}: {pin.name}: {pin.fault}" for pin in open_pins)


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
    shown, kind = os.path.relpath(path, root), kind_of(path.name)
    if kind is None:
        known = "requirements file, pylock.toml or uv.lock"
        raise LockfileError(f"{shown}: is no lockfile that the gate reads ({known}): {REMEDY}")
    try:
        text = read_text(path, root, MAX_BYTES)
        if kind == "requirements":
            entries = _requirements(text, shown)
        else:
            entries = _packages(text, shown, path.parent, root)
        pins = tuple(islice(entries, MAX_PACKAGES + 1))
    except (Unreadable, ValueError) as error:
        raise LockfileError(f"{shown}: {error}") from None
    if len(pins) > MAX_PACKAGES:
        raise LockfileError(f"{shown}: more than {MAX_PACKAGES} packages")
    if not any(pin.name or pin.fault for pin in pins):
        raise LockfileError(f"{shown}: pins nothing")
    return Lock(kind, shown, pins)


def same_version(locked: str, installed: str) -> bool:
    """Return whether two versions are the same release; the local label of the installed one counts
    if the locked one has a label."""
    try:
        one, other = Version(locked), Version(installed)
    except ValueError:
        return locked.strip().lower() == installed.strip().lower()
    return one == (other if one.local else Version(other.public))


def applies(marker: str, python: str | None) -> bool:
    """Return whether a lock's marker holds on this machine under the training's Python (`3.12.7`).
    What cannot be judged, or is a person's choice (an extra), holds."""
    known = None
    if python:
        known = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    try:
        return not marker or Marker(marker).evaluate(known, context="requirement")
    except (UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _requirements(text: str, shown: str) -> Iterator[Pin]:
    held, start = list[str](), 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = _COMMENT.sub("", line).rstrip()
        held.append(bare.removesuffix("\\"))
        if bare.endswith("\\"):
            continue
        if whole := "".join(held).strip():
            yield _requirement(whole, f"{shown}:{start}")
        held, start = [], number + 1


def _requirement(line: str, place: str) -> Pin:
    """Return the entry that one logical line is. Raises LockfileError for what is none."""
    if line.startswith(("-r", "--requirement")):
        raise LockfileError(f"{place}: `{line[:80]}`: other files are not read: {REMEDY}")
    if line.startswith("-"):
        fault = f"`{line[:80]}` has no hash" if line.startswith(("-e", "--editable")) else ""
        return Pin(name="", version=None, place=place, fault=fault)
    text, *options = re.split(r"(?<!\S)(?=--)", line, maxsplit=1)
    try:
        parsed = Requirement(text.strip() if len(text.strip()) <= MAX_REQUIREMENT else "")
    except (ValueError, RecursionError):
        message = f"{place}: `{text.strip()[:80]}` is no requirement: {REMEDY}"
        raise LockfileError(message) from None
    hashes = tuple(_HASH.findall("".join(options)))
    exact, fault = re.fullmatch(r"===?([^,*]+)", str(parsed.specifier)), _unpinned(hashes)
    if parsed.url is not None and not parsed.url.startswith(("https://", "http://")):
        fault = f"{parsed.url[:80]} is a path or a repository, which has no hash"
    elif parsed.url is None and exact is None:
        fault = f"`{str(parsed.specifier) or 'any version'}` is no one version"
    line = " ".join([*str(parsed).split(), *(f"--hash={digest}" for digest in hashes)])
    return Pin(
        name=str(canonicalize_name(parsed.name)),
        version=exact[1] if exact else None,
        place=place,
        marker=str(parsed.marker or ""),
        requirement="" if fault else line,
        fault=fault,
    )


def _packages(text: str, shown: str, folder: Path, root: Path) -> Iterator[Pin]:
    document = msgspec.convert(parse_toml(text), _Document)
    packages = document.package + document.packages
    # tomllib keeps no lines, so headers are counted; if they do not add up, no place has a line
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    places = [f"{shown}:{line}" for line in lines]
    if len(places) != len(packages):
        places = [shown] * len(packages)
    for item, place in zip(packages, places, strict=True):
        commit = item.vcs.get("commit-id") or item.source.get("git")
        folders = [item.source[key] for key in _FOLDERS if key in item.source]
        inner = next(iter(folders), item.directory.get("path"))
        files = [file for file in (item.sdist, item.archive, *item.wheels) if file is not None]
        digests = tuple(_digest(file) for file in files)
        if inner is None and commit is None and item.version:
            marker = f" ; {item.marker}" if item.marker else ""
            hashes = "".join(f" --hash={digest}" for digest in digests)
            yield _requirement(f"{item.name}=={item.version}{marker}{hashes}", place)
            continue
        fault = _unpinned(digests)
        if inner is not None:
            inside = is_inside(folder / str(inner), root)
            fault = "" if inside else "its folder lies outside the checkout"
        elif commit is not None:
            whole = _COMMIT.fullmatch(str(commit).rpartition("#")[2])
            fault = "" if whole else "a repository at no commit"
        yield Pin(
            name=str(canonicalize_name(item.name)),
            version=item.version,
            place=place,
            fault=fault,
            own=inner is not None,
        )


def _digest(file: _File) -> str:
    """Return the first strong digest of a file, else another one."""
    found = [file.hash or "none", *(f"{name}:{digits}" for name, digits in file.hashes.items())]
    return next(filter(_STRONG.fullmatch, found), found[-1])


def _unpinned(digests: tuple[str, ...]) -> str:
    """Return why files with these digests are not pinned; empty if they are."""
    weak = next((digest for digest in digests if not _STRONG.fullmatch(digest)), None)
    if weak is None:
        return "" if digests else "no hash"
    return f"{weak[:80]} is not a digest that pins a file"
