"""The lockfile as pip is to read it: a requirements file in which every line has a version and a hash.

The lock is an untrusted. What pip could not check by hash is refused here, with the line; pip's own `--require-hashes` stands behind it.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, read_text
from repro_gate.install.lockfiles import read_lock
from repro_gate.install.lockfiles.model import MAX_BYTES, LockfileError
from repro_gate.spec.model import Spec

_HASHED = "lock with hashes: `uv pip compile --generate-hashes pyproject.toml -o requirements.lock`"
_EXPORT = {
    "uv.lock": "`uv export --format requirements-txt --no-emit-project -o requirements.lock`",
    "poetry.lock": "`poetry export --format requirements.txt -o requirements.lock` (plugin poetry-plugin-export)",
    "pdm.lock": "`pdm export --format requirements -o requirements.lock`",
    "Pipfile.lock": "`pipenv requirements --hash > requirements.lock`",
    "pylock.toml": "`uv pip compile --generate-hashes pyproject.toml -o requirements.lock`",
}
_CONSTRAINTS = re.compile(r"\s*(?:-c|--constraint)(?:[\s=]|$)")
_SOURCES = re.compile(r"\s*--no-binary(?:[\s=]|$)", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")  # as pip has it


@dataclass(frozen=True)
class Wanted:
    """What is to be installed. `files` are the lock and the files that it includes: path below the checkout's root -> text, the lock
    itself first; `folder` is where the lock lies, which paths inside it start at."""

    name: str  # the lock, as the spec names it
    files: tuple[tuple[str, str], ...]
    folder: Path
    names: frozenset[str]  # of the distributions, normalised

    @property
    def from_source(self) -> bool:
        """Whether the lock asks for source archives though there are wheels (`--no-binary`)."""
        return any(_SOURCES.search(text) for _, text in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over names and texts, in hex."""
        parts = [part.encode() for pair in self.files for part in pair]
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


def wanted(spec: Spec, root: Path) -> Wanted:
    """What `env.lockfile` pins; `root` is the checkout's. Raises UsageError for a lock that cannot be read, of another format, or open."""
    declared, root = spec.env.lockfile or "", Path(os.path.realpath(root))
    path = Path(os.path.normpath(Path(os.path.realpath(spec.path.parent)) / declared))
    try:
        lock = read_lock(path, root)
    except LockfileError as error:
        raise _refused(str(error), "commit the lockfile, or correct env.lockfile") from None
    if lock.kind != "requirements":
        raise _refused(f"{declared} is a {lock.kind}, which pip cannot install from", _other(lock.kind))
    if lock.faults:
        more = f" (and {len(lock.faults) - 1} more)" if len(lock.faults) > 1 else ""
        raise _refused(f"{for_terminal(lock.faults[0], 300)}{more}", _HASHED)
    files = tuple((name, _text(name, root)) for name in lock.files)
    return Wanted(declared, files, path.parent, frozenset(pin.name for pin in lock.pins))


def _text(name: str, root: Path) -> str:
    try:
        text = read_text(root / name, root, MAX_BYTES)
    except Unreadable as error:
        raise _refused(f"{for_terminal(name, 200)}: {error}", "commit it, or correct env.lockfile") from None
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{for_terminal(name, 200)}:{number}"
        if _CONSTRAINTS.match(line):
            raise _refused(
                f"{place}: constraints are not read", "take the line out: a lock of all distributions leaves nothing to constrain"
            )
        if _VARIABLE.search(line):
            # pip would fill it in: an index of the lock's own could be sent what an index of the workflow's is opened with.
            raise _refused(f"{place}: variables are not filled in", "name the index in PIP_EXTRA_INDEX_URL, in the workflow")
    return text


def _other(kind: str) -> str:
    export = _EXPORT.get(kind)
    if export is None:
        return "make the environment in a step before the gate, so that its `python` is first on PATH, and leave env.install out"
    return f"write a requirements file with {export}, and name it in env.lockfile"


def _refused(message: str, remedy: str) -> UsageError:
    return UsageError(f"env.install: {message}", remedy=remedy, reason_id="install/lockfile")
