"""The folders that the gate makes in the workspace: the report folder, which the publishing step
reads, and the `cache` folder.

The workspace is untrusted: no link in a path is followed, and a file under one of our names is
replaced, never written through. The folders belong to the workspace's owner, and git ignores them,
so that a second gate in the same job still finds a clean checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from repro_gate.errors import GateError, UsageError, held
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, read_whole
from repro_gate.github.event import Malformed, decode
from repro_gate.report import document, exports, html, markdown
from repro_gate.report.document import ReportError, jsonable
from repro_gate.report.model import Report, View

REPORT = "report.json"
MARKDOWN = "report.md"
HTML = "report.html"
SARIF = "report.sarif"
PROBLEM = "problem.json"
# The problem file first, so that the next step never reports one that the checkout has committed.
FILES = (PROBLEM, REPORT, MARKDOWN, HTML, SARIF)
_TEXT = 10_000  # characters of an error's text that are kept
_PROBLEM_BYTES = 2**20

_Text = Annotated[str, Meta(max_length=_TEXT)]


class _Problem(msgspec.Struct, frozen=True):
    """Why there is no report: the error that ended the gate."""

    message: _Text
    remedy: _Text
    exit_code: Literal[2, 3]
    reason_id: _Text


@dataclass(frozen=True)
class Folder:
    """The open report folder, from `open_folder`. Every write goes through its descriptor."""

    descriptor: int
    owner: tuple[int, int]  # of the workspace: user and group

    def write(self, name: str, text: str) -> None:
        """Write a new file of that name. Raises OSError if it cannot be written."""
        self.remove(name)
        make = partial(os.open, mode=0o644, dir_fd=self.descriptor)
        with open(name, "xb", opener=make) as file:  # which follows no link
            file.write(text.encode(errors="backslashreplace"))
            _chown(file.fileno(), self.owner)

    def write_report(self, report: Report, view: View) -> None:
        """Write report.json, report.md, report.html and report.sarif, and nothing else of ours."""
        self.remove(*FILES)
        self.write(REPORT, document.render(report))
        self.write(MARKDOWN, markdown.summary(report, view))
        self.write(HTML, html.render(report, view))
        self.write(SARIF, exports.sarif(report, view))

    def write_problem(self, error: GateError) -> None:
        """Write the error that stands in for a report."""
        problem = {name: getattr(error, name) for name in _Problem.__struct_fields__}
        self.write(PROBLEM, json.dumps(jsonable(problem, characters=_TEXT)))

    def remove(self, *names: str) -> None:
        """Remove files of an earlier gate run or of the checkout, which could be mistaken for this
        run's."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.descriptor)


@contextlib.contextmanager
def open_folder(workspace: Path, name: str, kind: str = "report") -> Iterator[Folder]:
    """Make and open the folder `name` (a relative path) of the workspace, hidden from git; each
    folder on the way is the workspace's owner's. A report folder is emptied of an earlier gate's
    files.

    Raises UsageError for a link or a file in its path, and for something in it that cannot be
    removed.
    """
    status = os.stat(workspace)
    owner = (status.st_uid, status.st_gid)
    with contextlib.ExitStack() as descriptors:
        descriptor = os.open(workspace, os.O_DIRECTORY)
        descriptors.callback(os.close, descriptor)
        for part in Path(name).parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=descriptor)
                flags = os.O_DIRECTORY | os.O_NOFOLLOW
                descriptor = os.open(part, flags, dir_fd=descriptor)
            except OSError as error:
                why = f"{part!r} is a link or no folder ({error.strerror})"
                raise _unusable(kind, name, why) from None
            descriptors.callback(os.close, descriptor)
            _chown(descriptor, owner)
        folder = Folder(descriptor, owner)
        try:
            if kind == "report":
                folder.remove(*FILES)
            folder.write(".gitignore", "*\n")
        except OSError as error:
            why = f"{error.filename!r} in it cannot be replaced ({error.strerror})"
            raise _unusable(kind, name, why) from None
        yield folder


@contextlib.contextmanager
def cache_folder(cache: Path | None, workspace: Path) -> Iterator[None]:
    """Inside the block the cache folder belongs to the gate, afterwards to the workspace's owner
    again.

    The cache of digests is used only if nobody else could have written it, and root's files
    would break the runner's next checkout. A folder outside the workspace is left alone. Raises
    UsageError for the workspace itself and for a link in the folder's path.
    """
    if cache is None or not Path(os.path.normpath(cache)).is_relative_to(workspace):
        yield
        return
    name = os.path.relpath(cache, workspace)
    if name == ".":
        raise _unusable("cache", name, "it is the workspace itself")
    with open_folder(workspace, name, "cache") as folder, held():
        _chown_tree(cache, (0, 0))
        try:
            yield
        finally:
            _chown_tree(cache, folder.owner)


def _unusable(kind: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"{kind}: {name!r} cannot be used: {why}",
        remedy="name a folder that is not part of the checkout: "
        f"`with: {{{kind}: .repro-gate-{kind}}}`",
        reason_id="action/report-folder" if kind == "report" else "action/cache-folder",
    )


def _chown(handle: int, owner: tuple[int, int]) -> None:
    """Give a file that root made to the workspace's owner: a root-owned file breaks the next
    checkout."""
    if os.geteuid() == 0:
        os.fchown(handle, *owner)


def _chown_tree(folder: Path, owner: tuple[int, int]) -> None:
    """Give the whole tree to one owner: links themselves, never what they lead to, and folders by
    their descriptors, so that none is swapped."""
    if os.geteuid() != 0:
        return
    for _, names, files, descriptor in os.fwalk(folder):
        for name in (*names, *files):
            with contextlib.suppress(FileNotFoundError):
                os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, *owner, follow_symlinks=False)


def find_report(workspace: Path, name: str) -> Path:
    """Return where report.json is, or would be, for the folder `name` of the workspace.

    Raises UsageError for a link on the way: a checkout with one in the folder's place would choose
    what is published.
    """
    path = workspace / name / REPORT
    real = os.path.relpath(os.path.realpath(path), os.path.realpath(workspace))
    if real != os.path.normpath(os.path.join(name, REPORT)):
        raise _unusable("report", name, "it is a link, or behind one")
    return path


def read_problem(folder: Path) -> GateError | None:
    """Return the error that an earlier step left; None if there is none. Raises ReportError for one
    that the gate did not write."""
    path = folder / PROBLEM
    if not os.path.lexists(path):
        return None
    try:
        if path.is_symlink():
            raise Unreadable("is a link")
        left = decode(read_whole(path, _PROBLEM_BYTES), _Problem)
    except (Unreadable, Malformed) as error:
        raise ReportError(
            f"{for_terminal(os.fspath(path), 200)}: not a problem that the gate wrote: {error}"
        ) from None
    problem = GateError(left.message, remedy=left.remedy, reason_id=left.reason_id)
    problem.exit_code = left.exit_code
    return problem
