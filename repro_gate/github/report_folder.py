"""The report folder: what the gate hands to whoever publishes, and to `upload-artifact`.

It lies in the workspace, which is an untrusted checkout: no link in its path is followed, and what stands there under the names of ours is
replaced, never written through. It belongs to the workspace's owner, and git ignores it, so that a second gate in the same job still finds
a clean checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from repro_gate.errors import GateError, UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.redact import redact
from repro_gate.report.untrusted_json import ReportError, read_json

REPORT, MARKDOWN, SARIF, PROBLEM = "report.json", "report.md", "report.sarif", "problem.json"
_NAMES = (REPORT, MARKDOWN, SARIF, PROBLEM)
_TEXT = 20_000  # characters of a problem that are kept


@dataclass(frozen=True)
class Problem:
    """Why there is no report: an error for a person, as `errors.GateError` tells it. `exit_code` 0: nothing was to be done."""

    message: str
    remedy: str
    exit_code: int
    reason_id: str = "usage"

    @classmethod
    def of(cls, error: GateError) -> Problem:
        """The problem that an error is."""
        return cls(error.message, error.remedy, error.exit_code, error.reason_id)

    def without(self, known: Sequence[str]) -> Problem:
        """The same with every known secret, and whatever looks like a token, taken out: a spec's text may stand in a message."""
        return replace(self, message=redact(self.message, known), remedy=redact(self.remedy, known))


class Folder:
    """The report folder, open. Made by `open_folder`; every write goes through its descriptor."""

    def __init__(self, path: str, descriptor: int, owner: tuple[int, int]) -> None:
        self.path = path  # relative to the workspace, as steps of the workflow name it
        self._descriptor, self._owner = descriptor, owner

    def write(self, name: str, text: str) -> None:
        """A new file of that name. Raises OSError where it cannot be written."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=self._descriptor)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            _give(handle, self._owner)

    def write_problem(self, problem: Problem) -> None:
        """What stands in for a report."""
        clipped = {key: value[:_TEXT] if isinstance(value, str) else value for key, value in asdict(problem).items()}
        self.write(PROBLEM, json.dumps(clipped, indent=2) + "\n")

    def clear(self) -> None:
        """Remove what an earlier gate left here: nobody may take it for this one's."""
        for name in _NAMES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._descriptor)


@contextlib.contextmanager
def open_folder(workspace: Path, name: str) -> Iterator[Folder]:
    """Make and open the folder `name` (a relative path) of the workspace, emptied of an earlier gate's files.

    Raises UsageError for a link or a file in its path.
    """
    status = os.stat(workspace)
    owner = (status.st_uid, status.st_gid)
    with contextlib.ExitStack() as opened:
        descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        for part in Path(name).parts:
            descriptor = _below(descriptor, part, owner, name)
            opened.callback(os.close, descriptor)
        folder = Folder(name, descriptor, owner)
        folder.clear()
        folder.write(".gitignore", "*\n")
        yield folder


def _below(parent: int, part: str, owner: tuple[int, int], name: str) -> int:
    """The folder `part` of an open folder, made where it is not there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        made = not _exists(parent, part)
        if made:
            os.mkdir(part, 0o755, dir_fd=parent)
        descriptor = os.open(part, flags, dir_fd=parent)
    except OSError as error:
        raise UsageError(
            f"report: {name!r} cannot be used: at {part!r}: {error.strerror}" + (", or a link" if _exists(parent, part) else ""),
            remedy="name a folder that is no part of the checkout: `with: {report: repro-gate-report}`",
            reason_id="action/report-folder",
        ) from None
    if made:
        _give(descriptor, owner)
    return descriptor


def _exists(parent: int, part: str) -> bool:
    with contextlib.suppress(OSError):
        os.stat(part, dir_fd=parent, follow_symlinks=False)
        return True
    return False


def _give(handle: int, owner: tuple[int, int]) -> None:
    """What root makes in somebody's workspace is theirs: a root-owned file breaks the next checkout."""
    if os.geteuid() == 0:
        os.fchown(handle, *owner)


def find_report(workspace: Path, name: str, *, one_file: bool = False) -> Path:
    """Where report.json is, or would be, for the folder `name` of the workspace; `name` itself where it is a file and may be (`one_file`).

    Raises ReportError for a link on the way: a checkout with one in the folder's place would choose what is published.
    """
    path = workspace / name
    if not (one_file and os.path.isfile(path)):
        path /= REPORT
    for place in (path, *path.parents):
        if place == workspace:
            break
        if os.path.islink(place):
            remedy = "name a folder that is no part of the checkout: `with: {report: repro-gate-report}`"
            raise ReportError(f"{_shown(place)}: is a link", remedy=remedy, reason_id="action/report-folder")
    return path


def read_problem(folder: Path) -> Problem | None:
    """The problem that an earlier step left; None where there is none. Raises ReportError for one that is not of our making."""
    path = folder / PROBLEM
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ReportError(f"{_shown(path)}: is no regular file")
    except OSError:
        return None
    document = read_json(path)
    try:
        message, remedy, code, reason = (document[key] for key in ("message", "remedy", "exit_code", "reason_id"))
    except (KeyError, TypeError):
        raise ReportError(f"{_shown(path)}: not a problem that the gate wrote") from None
    texts = isinstance(message, str) and isinstance(remedy, str) and isinstance(reason, str)
    if not texts or type(code) is not int or code not in (0, 2, 3):
        raise ReportError(f"{_shown(path)}: not a problem that the gate wrote")
    return Problem(message, remedy, code, reason)


def _shown(path: Path) -> str:
    return for_terminal(os.fspath(path), 200)
