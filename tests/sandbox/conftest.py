"""A temporary folder that another user may enter, since pytest's own are closed to others and
closed again whenever a session begins. And one test at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.files import remove_tree
from tests.support import starting


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Held by the test that runs, whichever of pytest's processes it runs in."""
    with starting.alone():
        yield


@pytest.fixture
def tmp_path(alone: None) -> Iterator[Path]:
    """A folder of mode 0755 whose path others may pass."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file for the gate's own user alone."""
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    return path
