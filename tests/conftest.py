"""Which tests share a process, and which come first: `make test` spreads them over two.

A file's tests stay together, since they share its fixtures, but for those of _FREE and `gpu/`, which
are spread one by one; those of `sandbox/` wait for one lock, so they are one group. What takes longest
comes first, so that no process waits for the other at the end. (xdist's own marker for groups is
read by no pytest from 9.2 on.)

OpenMP's threads sleep while they wait: beside another process, threads that spin take ten times as
long.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

os.environ["OMP_WAIT_POLICY"] = "passive"
_FIRST = ("e2e", "combinations", "probe", "gate", "sandbox", "runs")
_FREE = ("test_examples.py", "test_robust.py", "test_odd_trainings.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the groups."""
    items.sort(
        key=lambda item: (
            _FIRST.index(_room(item.nodeid)) if _room(item.nodeid) in _FIRST else len(_FIRST)
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out whole groups, in their order."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return (
                nodeid
                if path.endswith(_FREE) or _room(nodeid) == "gpu"
                else "sandbox"
                if _room(nodeid) == "sandbox"
                else path
            )

    return Groups(config, log)


def _room(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/").partition("/")[0]
