"""A folder with a short name, for trainings that start processes: multiprocessing's sockets lie
below TMPDIR, and Linux allows their paths 108 bytes, which pytest's own folders take up alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rg", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)
