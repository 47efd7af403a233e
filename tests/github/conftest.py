"""The stage of a pull request, for the tests of what is published, and a clock that nobody waits
for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro_gate.github import comment, transport
from tests.support.github.conversation import conversation
from tests.support.github.server import GitHub
from tests.support.github.stage import Stage, staged


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before requests that are made again, in seconds."""
    pauses: list[float] = []
    patched = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(transport, "time", patched)
    return pauses


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """See `tests.support.github.stage`; nothing waits for GitHub to settle."""
    monkeypatch.setattr(comment, "SETTLE", 0.0)
    with staged(tmp_path) as found:
        yield found


@pytest.fixture
def github() -> Iterator[GitHub]:
    """See `tests.support.github.conversation`."""
    with conversation() as server:
        yield server
