"""git, asked without letting the repository run anything: the one place that starts it. The
environment's GIT_* variables are dropped; hooks, the file system monitor, content filters, lazy
fetching and prompts are switched off for each call alone, and ownership by somebody else is
accepted because of that. Nothing is written: not to the repository, not to any configuration; only
where a `WorkTree` is named, files go there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import UsageError
from repro_gate.files import TOOLS

_GIT_SECONDS = 300
_QUIET = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",
    "safe.directory": "*",
}
_APART = {  # for a work tree apart from the checkout: all files, and an index that is one file
    "core.sparseCheckout": "false",
    "core.splitIndex": "false",
    "index.sparse": "false",
}
_FILTER = re.compile(
    rb"filter\.(.+)\.(clean|smudge|process|required)", re.DOTALL | re.IGNORECASE
)
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


class GitFailed(UsageError):
    """git ended with a `status` other than 0, and wrote `answer` to stderr."""

    def __init__(self, root: Path, answer: str, status: int) -> None:
        super().__init__(
            f"git cannot read the checkout {root}: {answer[:500]}",
            remedy="see whether `git status` works in it",
            reason_id="workspace/git",
        )
        self.answer = answer
        self.status = status


@dataclass(frozen=True)
class WorkTree:
    """A folder of files and an index, both apart from the checkout's own: a command with one runs
    in `folder` and writes only there and to `index`. `repository` is the git directory,
    absolute."""

    repository: Path
    folder: Path
    index: Path


def git(
    root: Path,
    *arguments: str,
    stdin: bytes = b"",
    work_tree: WorkTree | None = None,
    seconds: int = _GIT_SECONDS,
) -> bytes:
    """Return what a git command in `root` prints, with everything switched off that could run a
    program of the repository's choosing.

    Raise GitFailed for a status other than 0 and after `seconds`.
    """
    names = _run(root, ("config", "--list", "--name-only", "-z"), _QUIET).split(b"\0")
    settings = dict(_QUIET)
    for match in filter(None, map(_FILTER.fullmatch, names)):
        name = os.fsdecode(match[1])
        settings |= {f"filter.{name}.{key}": off for key, off in _NO_FILTER.items()}
    places = {}
    if work_tree is not None:
        root = work_tree.folder
        settings |= _APART
        places = {
            "GIT_DIR": str(work_tree.repository),
            "GIT_WORK_TREE": str(work_tree.folder),
            "GIT_INDEX_FILE": str(work_tree.index),
        }
    return _run(root, arguments, settings, stdin, places, seconds)


def git_program() -> str:
    """Return the gate's own git, else the one on PATH."""
    return shutil.which("git", path=TOOLS) or "git"


def git_line(root: Path, *arguments: str) -> str:
    """Return the one line that a git command in `root` prints. Raise GitFailed."""
    return os.fsdecode(git(root, *arguments).removesuffix(b"\n"))


def git_names(
    root: Path, *arguments: str, work_tree: WorkTree | None = None
) -> list[str]:
    """Return the names that a git command in `root` prints, a NUL behind each. Raise GitFailed."""
    output = git(root, *arguments, work_tree=work_tree)
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _run(
    folder: Path,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    stdin: bytes = b"",
    places: Mapping[str, str] = {},
    seconds: int = _GIT_SECONDS,
) -> bytes:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_NO_REPLACE_OBJECTS": "1",
        **places,
    }
    for place, (key, value) in enumerate(settings.items()):
        environment |= {
            f"GIT_CONFIG_KEY_{place}": key,
            f"GIT_CONFIG_VALUE_{place}": value,
        }
    try:
        done = subprocess.run(
            [git_program(), "--no-optional-locks", *arguments],
            cwd=folder,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        why = f"git {arguments[0]} took longer than {seconds} s"
        raise GitFailed(folder, why, -1) from error
    if done.returncode != 0:
        answer = done.stderr.decode("utf-8", "replace").strip()
        answer = answer or f"git {arguments[0]} ended with {done.returncode}"
        raise GitFailed(folder, answer, done.returncode)
    return done.stdout
