"""The stage of a pull request, for the tests of what is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.github import comment
from tests.support.github.stage import Stage, staged


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """See `tests.support.github.stage`; nothing waits for GitHub to settle."""
    monkeypatch.setattr(comment, "SETTLE", 0.0)
    with staged(tmp_path) as found:
        yield found
