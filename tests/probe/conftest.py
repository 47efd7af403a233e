"""Folders with a short name, for trainings that start processes: multiprocessing's sockets lie
below TMPDIR, and Linux allows their paths 108 bytes, which pytest's own folders take up alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rg", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def short_path(short_folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=short_folder))
