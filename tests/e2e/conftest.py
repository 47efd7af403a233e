"""Gatings side by side: a temporary folder for each of pytest's processes, so that one does not take another's leftovers for its own, and
OpenMP threads that sleep while they wait, since threads that spin on a busy machine take ten times as long."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def apart() -> Iterator[None]:
    """For the whole session of one process."""
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", os.path.realpath(folder))
        patch.setenv("OMP_WAIT_POLICY", "passive")
        patch.setattr(tempfile, "tempdir", None)
        yield
