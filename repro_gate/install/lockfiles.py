"""What a lockfile pins and what it leaves open. Everything is read as requirements: a `uv.lock` by
`uv export`, a `pylock.toml` by packaging, which also reads each requirement.

A lockfile comes from the checkout and is untrusted: size, count and time are bounded, and whatever
is wrong with it is a LockfileError.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from packaging.markers import Marker, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from repro_gate.files import (
    Unreadable,
    is_inside,
    parse_toml,
    read_text,
    scratch_folder,
)

MAX_BYTES = 32 * 1024 * 1024
MAX_PACKAGES = 50_000
MAX_REQUIREMENT = 4096  # characters, without the hashes behind it
REMEDY = "write it with `uv pip compile --generate-hashes`, `uv export` or `uv lock`"
_KINDS = re.compile(
    r"(?P<uv>uv\.lock)|(?P<pylock>pylock(?:\..+)?\.toml)"
    r"|(?P<requirements>(?!(?:poetry|pdm|Pipfile)\.lock).+\.(?:txt|lock))"
)
_COMMENT = re.compile(r"(?m)(?:^|[^\S\n])#.*$")
_LINE = re.compile(r"(?:.*\\\n)*.*\n?")
_HASH = re.compile(r"--hash(?:=|\s+)(\S+)")
# MD5 and SHA-1 can be forged, so they pin nothing.
_STRONG = re.compile(
    r"sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})", re.IGNORECASE
)
_COMMIT = re.compile(r"git\+.+@(?:[0-9a-f]{40}|[0-9a-f]{64})(?:#.*)?", re.IGNORECASE)
# as `uv export` writes a folder, and the archive of a distribution
_FOLDER = re.compile(r"(?:-e )?(?:file://)?([./][^;]*)")
_ARCHIVE = re.compile(
    r"(?:file://)?[./](?:\S*/)?([^/\s-]+)-([^/\s-]+)(?:-[^/\s]+\.whl|\.tar\.gz|\.zip)"
)
_EXPORT = """
ulimit -t 20 || :  # a lower one holds already
ulimit -d 2097152 || :
exec "$0" export --quiet --frozen --offline --no-build --no-header --no-annotate "$@"
"""
_EVERYTHING = ("--all-packages", "--all-groups", "--all-extras")
_SECONDS = 60


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One entry of a lock."""

    place: str  # `path:line` of requirements, else `path`
    name: str = ""  # normalised; empty for an option
    version: str | None = None  # None: a commit or a URL pins it, or nothing
    fault: str = ""  # why it is not pinned
    marker: str = ""
    # with hashes, as one line to install it by; empty: it cannot be
    requirement: str = ""

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


def kind_of(name: str) -> str | None:
    """Return the format that a file of this name has; None for a name that no format has."""
    match = _KINDS.fullmatch(name)
    return match and match.lastgroup


def read_lock(path: Path, root: Path, *, everything: bool = True) -> Lock:
    """Return what the lockfile at `path` pins, but for the code of the checkout at `root`, in which
    it must lie. Of a `uv.lock`, `everything` is each extra and group of each member, else it is
    what `uv sync` installs. Raises LockfileError."""
    name = os.path.relpath(path, root)
    kind = kind_of(path.name)
    if kind is None:
        raise LockfileError(
            f"{name}: is no requirements, pylock.toml or uv.lock: {REMEDY}"
        )
    try:
        text = read_text(path, root, MAX_BYTES)
        entries: Iterator[Pin]
        if kind == "requirements":
            lines = _lines(text)
            entries = (_requirement(line, f"{name}:{at}") for at, line in lines)
        elif kind == "uv":
            lines = _lines(_exported(text, path, root, everything))
            entries = _entries((line for _, line in lines), path, root)
        else:
            entries = _entries(_packages(text), path, root)
        pins = tuple(islice(entries, MAX_PACKAGES + 1))
    except (Unreadable, ValueError) as error:
        raise LockfileError(f"{name}: {error}") from None
    if len(pins) > MAX_PACKAGES:
        raise LockfileError(f"{name}: more than {MAX_PACKAGES} packages")
    if not any(pin.name or pin.fault for pin in pins):
        raise LockfileError(f"{name}: pins nothing")
    return Lock(kind, name, pins)


def same_version(locked: str, installed: str) -> bool:
    """Return whether two versions are the same release; the local label of the installed one counts
    if the locked one has a label."""
    try:
        return SpecifierSet(f"=={locked}").contains(installed, prereleases=True)
    except ValueError:
        return locked.strip().lower() == installed.strip().lower()


def applies(marker: str, python: str | None) -> bool:
    """Return whether a lock's marker holds on this machine under the training's Python (`3.12.7`).
    What cannot be judged, or is a person's choice (an extra), holds."""
    python = python or platform.python_version()
    known = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    try:
        return not marker or Marker(marker).evaluate(known, context="requirement")
    except (UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines of requirements, with the number of the first line of each."""
    number = 1
    for match in _LINE.finditer(_COMMENT.sub("", "\n".join(text.splitlines()))):
        if line := match[0].replace("\\\n", "").strip():
            yield number, line
        number += match[0].count("\n")


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
    weak = [digest for digest in hashes if not _STRONG.fullmatch(digest)]
    specifier = str(parsed.specifier)
    exact = re.fullmatch(r"===?([^,*]+)", specifier)
    url = parsed.url or ""
    is_commit = _COMMIT.fullmatch(url) is not None
    fault = ""
    if url and not is_commit and not url.startswith(("https://", "http://")):
        fault = f"{url[:80]} is a path, or a repository at no commit"
    elif not url and exact is None:
        fault = f"`{specifier or 'any version'}` is no one version"
    elif weak:
        fault = f"{weak[0][:80]} is not a digest that pins a file"
    elif not hashes and not is_commit:
        fault = "no hash"
    line = " ".join([*str(parsed).split(), *(f"--hash={digest}" for digest in hashes)])
    return Pin(
        name=str(canonicalize_name(parsed.name)),
        version=exact[1] if exact else None,
        place=place,
        fault=fault,
        marker=str(parsed.marker or ""),
        requirement="" if fault or is_commit else line,
    )


def _exported(text: str, path: Path, root: Path, everything: bool) -> str:
    """Return as requirements what the `uv.lock` at `path` says. Raises Unreadable.

    Nothing is built, fetched or started. Memory and time are bounded; what uv prints is not
    repeated, since it might quote another file that a `pyproject.toml` names. uv looks for one
    above its folder too, so the next one above is empty.
    """
    with scratch_folder() as folder:
        (folder / "pyproject.toml").touch()
        project = folder / "project"
        project.mkdir()
        (project / path.name).write_text(text, encoding="utf-8")
        with suppress(Unreadable):  # uv may do without, or fail
            other = read_text(path.with_name("pyproject.toml"), root, MAX_BYTES)
            (project / "pyproject.toml").write_text(other, encoding="utf-8")
        options = _EVERYTHING if everything else ()
        try:
            return subprocess.run(
                ["/bin/sh", "-uc", _EXPORT, find_uv_bin(), *options],
                cwd=project,
                env={"UV_NO_CONFIG": "1", "UV_NO_CACHE": "1", "TMPDIR": str(folder)},
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            ).stdout
        except OSError as error:
            raise Unreadable(f"is read by uv, `pip install uv`: {error}") from None
        except subprocess.SubprocessError:
            raise Unreadable(
                "`uv export --frozen` cannot read it with the pyproject.toml next to it"
            ) from None


def _packages(text: str) -> Iterator[str]:
    """Yield the packages of a `pylock.toml` as requirements, as `uv export` writes them. Raises
    Unreadable."""
    for item in parse_toml(text, "pylock.toml")["packages"]:
        source = f"=={item['version']}" if "version" in item else ""
        if "directory" in item:
            yield os.path.join(".", item["directory"]["path"])
            continue
        if vcs := item.get("vcs"):
            source = f" @ {vcs['type']}+{vcs.get('url')}@{vcs['commit-id']}"
        files = [item.get("sdist"), item.get("archive"), *item.get("wheels", ())]
        digests = (_digest(file["hashes"]) for file in files if file)
        marker = f" ; {item['marker']}" if "marker" in item else ""
        yield " ".join([f"{item['name']}{source}{marker}", *digests])


def _digest(hashes: dict[str, str]) -> str:
    """Return the first strong digest of a file, else another one, as an option of requirements."""
    digests = [":".join(item) for item in hashes.items()]
    return f"--hash={next(filter(_STRONG.fullmatch, digests), digests[-1])}"


def _entries(lines: Iterable[str], path: Path, root: Path) -> Iterator[Pin]:
    """Yield the entries of the lock at `path` that was converted to these requirements. The
    checkout pins the folders in it."""
    place = os.path.relpath(path, root)
    for line in lines:
        # what is longer is no path, and no requirement either
        text = line.partition(" --")[0]
        is_short = len(text) <= MAX_REQUIREMENT
        archive = _ARCHIVE.match(text) if is_short else None
        folder = _FOLDER.match(text) if is_short and not archive else None
        if archive:
            rest = line[archive.end() :]
            yield _requirement(f"{archive[1]}=={archive[2]}{rest}", place)
        elif not folder:
            yield _requirement(line, place)
        elif not is_inside(path.parent / folder[1].strip(), root):
            yield Pin(place=place, name=line[:80], fault="its folder lies outside")
