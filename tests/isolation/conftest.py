"""A temporary folder that another user may enter: pytest's own are closed to others, and closed again whenever a session begins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.files import remove_tree


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="isolation-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)
