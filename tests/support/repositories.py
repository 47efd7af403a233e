"""Real git repositories and trees of files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import Snapshot, take_snapshot

_PERSON = ("-c", "user.name=t", "-c", "user.email=t@example.com")
_OURS = (*_PERSON, "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *_OURS, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, message: str = "more", **files: str) -> str:
    """Everything in `folder`, these files included, as a commit; its name."""
    write(folder, **files)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message, "--allow-empty")
    return git(folder, "rev-parse", "HEAD")


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    ignored = "*.log\nbuild/\n"
    commit(folder, train_dot_py="print(1)", pkg__model_dot_py="x = 1", _dot_gitignore=ignored)
    return folder


def tree(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(base, name), folder)
        for base, _, names in os.walk(folder)
        for name in names
    )


def snapshot_of(folder: Path, tmp_path: Path) -> Snapshot:
    return take_snapshot(inspect_checkout(folder), tmp_path / "snapshot")
