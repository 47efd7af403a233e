"""A temporary folder that another user may enter, since pytest's own are closed to others and
closed again whenever a session begins.

And one test at a time on this machine: all of them share the training's user, and each ends all of
that user's processes.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.files import remove_tree

_LOCK = Path(tempfile.gettempdir(), f"repro-gate-sandbox-tests-{os.getuid()}.lock")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Held by the test that runs, whichever of pytest's processes it runs in."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def tmp_path(alone: None) -> Iterator[Path]:
    """A folder of mode 0755 whose path others may pass."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)
