"""Which tests share a process, and which come first: `make test` spreads them over two.

A file's tests stay together, since they share its fixtures, but for those of _FREE, which are spread one by one. What takes longest comes
first, so that no process waits for the other at the end.
"""

from __future__ import annotations

import pytest

_FIRST = ("e2e", "combinations", "probe", "gate", "sandbox", "runs")
_FREE = ("test_examples.py", "test_robust.py", "test_odd_trainings.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its group, and sort the groups."""
    for item in items:
        room = _room(item)
        if item.get_closest_marker("xdist_group") is None and item.path.name not in _FREE:
            item.add_marker(pytest.mark.xdist_group("sandbox" if room == "sandbox" else str(item.path)))
    items.sort(key=lambda item: _FIRST.index(_room(item)) if _room(item) in _FIRST else len(_FIRST))


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath / "tests").parts[0]
