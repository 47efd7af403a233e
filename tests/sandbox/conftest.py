"""A temporary folder that another user may enter, and one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import starting


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Held by the test that runs, whichever of pytest's processes it runs in."""
    with starting.alone():
        yield


@pytest.fixture
def tmp_path(alone: None) -> Iterator[Path]:
    """One that another user may enter."""
    with starting.open_folder() as folder:
        yield folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file for the gate's own user alone."""
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    return path
