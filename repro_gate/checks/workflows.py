"""Which actions and images a checkout's workflows use, and which of them are pinned.

Read are `.github/workflows/*.yml`, the local actions below `.github/actions`, an action at the root, and every local action that one of
these names. Files are read with limits and nothing is run; what cannot be read is said in `problems`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro_gate.files import Unreadable, is_inside, read_text
from repro_gate.install.yaml_scalars import YamlFault, YamlPath, scalars

MAX_FILES = 500
MAX_FOLDERS = 2_000
MAX_BYTES = 1024 * 1024  # of one file
_COMMIT = re.compile(r"[^@\s]+@(?:[0-9a-f]{40}|[0-9a-f]{64})", re.IGNORECASE)
_IMAGE = re.compile(r"(?:docker://)?\S+@sha256:[0-9a-f]{64}", re.IGNORECASE)
_ACTION = ("action.yml", "action.yaml")


@dataclass(frozen=True)
class Use:
    """One `uses:` of a step, of a job (a reusable workflow) or of a composite action's step; or the image of a job's container or of
    one of its services (`of_job`). `action` is what is written there."""

    path: str
    line: int
    action: str
    of_job: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.action}"

    @property
    def is_image(self) -> bool:
        """Whether it names a container image."""
        return self.of_job or self.action.startswith("docker:")

    @property
    def local(self) -> bool:
        """Whether it names a folder or file of the checkout itself, which the checkout's commit pins."""
        return not self.of_job and self.action.startswith(("./", "../"))

    @property
    def pinned(self) -> bool:
        """Whether what it names can never change: local, at a whole commit, or an image by its digest."""
        return self.local or bool((_IMAGE if self.is_image else _COMMIT).fullmatch(self.action))


@dataclass(frozen=True)
class Workflows:
    """What was found: `files` by their paths in the checkout, every use in order, and `path:line: what is wrong`."""

    files: tuple[str, ...]
    uses: tuple[Use, ...]
    problems: tuple[str, ...]


def read_workflows(root: Path) -> Workflows:
    """Every use in the workflows and local actions of the checkout at `root`."""
    waiting = [*_workflow_files(root), *_action_files(root)]
    files: list[str] = []
    uses: list[Use] = []
    problems: list[str] = []
    for path in waiting:  # grows while it is walked: local actions name further ones
        if path in files:
            continue
        if len(files) >= MAX_FILES:
            problems.append(f"{path}: not read, there are more than {MAX_FILES} workflows and actions")
            break
        files.append(path)
        found = _uses(root, path, problems)
        uses += found
        waiting += [target for use in found if use.local for target in _local_action(root, use.action)]
    return Workflows(tuple(files), tuple(uses), tuple(problems))


def _uses(root: Path, path: str, problems: list[str]) -> list[Use]:
    found: list[Use] = []
    try:
        text = read_text(root / path, root, MAX_BYTES)
        for item in scalars(text):
            if _is_use(item.path):
                found.append(Use(path, item.line, item.value))
            elif _is_image(item.path) and item.value and "${{" not in item.value:
                found.append(Use(path, item.line, item.value, of_job=True))
    except Unreadable as error:
        problems.append(f"{path}: {error}")
    except YamlFault as error:
        problems.append(f"{path}:{error.line}: is no YAML: {error}")
    return found


def _is_use(path: YamlPath) -> bool:
    match path:
        case ("jobs", _, "uses") | ("jobs", _, "steps", int(), "uses") | ("runs", "steps", int(), "uses"):
            return True
    return False


def _is_image(path: YamlPath) -> bool:
    match path:
        case ("jobs", _, "container") | ("jobs", _, "container", "image") | ("jobs", _, "services", _, "image"):
            return True
    return False


def _workflow_files(root: Path) -> list[str]:
    folder = root / ".github" / "workflows"
    try:
        names = sorted(os.listdir(folder)) if is_inside(folder, root) else []
    except OSError:
        return []
    return [f".github/workflows/{name}" for name in names if name.endswith((".yml", ".yaml")) and (folder / name).is_file()]


def _action_files(root: Path) -> Iterator[str]:
    yield from (name for name in _ACTION if (root / name).is_file())
    top = root / ".github" / "actions"
    for count, (folder, inner, names) in enumerate(os.walk(top)):  # links to folders are not followed
        if count >= MAX_FOLDERS:
            return
        inner.sort()
        yield from (posixpath.join(os.path.relpath(folder, root), name) for name in _ACTION if name in names)


def _local_action(root: Path, action: str) -> Iterator[str]:
    folder = posixpath.normpath(action)
    if folder != ".." and not folder.startswith("../"):
        paths = [posixpath.normpath(posixpath.join(folder, name)) for name in _ACTION]
        yield from (path for path in paths if "\0" not in path and (root / path).is_file())
