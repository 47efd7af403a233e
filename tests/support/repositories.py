"""Real git repositories and trees of files for the tests of checkout, workspace, files and declared
data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IDENTITY = (
    "-c",
    "user.name=t",
    "-c",
    "user.email=t@example.com",
    "-c",
    "protocol.file.allow=always",
    "-c",
    "init.defaultBranch=main",
)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    write(
        folder, train_dot_py="print(1)", pkg__model_dot_py="x = 1", _dot_gitignore="*.log\nbuild/\n"
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def tree(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(base, name), folder)
        for base, _, names in os.walk(folder)
        for name in names
    )
