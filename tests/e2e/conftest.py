"""Gate runs side by side: a temporary folder for each file of tests, so that one does not take another's leftovers for its own, and OpenMP
threads that sleep while they wait, since threads that spin on a busy machine take ten times as long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For the tests of one file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setenv("OMP_WAIT_POLICY", "passive")
        patch.setattr(tempfile, "tempdir", None)
        yield
