"""The factors in the training's process: each can be watched, pinned or varied, as the run's
configuration says; what comes from outside the process (files, network, commands) is watched only.
One file for each.

Nothing is imported or replaced where the configuration names none: a gate run that passes pays
nothing for a diagnosis.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# In the order in which they are installed. Files come last: what is below them does not note what
# it asks for itself.
_FACTORS = (
    "hashing",
    "entropy",
    "clock",
    "listing",
    "identity",
    "addresses",
    "memory",
    "threads",
    "environment",
    "files",
    "network",
)
_USES: list[Any] = []  # this process's, if the configuration names a factor


def start(config: dict[str, Any], folders: dict[str, str]) -> Any:
    """Watch, pin or vary what `config` names, in this process from here on; None if it names
    nothing.

    `config`: `watch` (bool), `pin` (factor -> None for every use, or the sites [file, line]),
    `vary` (factors). `folders` are the run's own by the name of what varies them.
    """
    if not any(config.get(name) for name in ("watch", "pin", "vary")):
        return None
    from .use import USES

    USES.start(config, folders)
    _USES[:] = [USES]
    os.register_at_fork(before=USES.forking, after_in_child=USES.born)
    for name in filter(USES.wants, _FACTORS):
        try:
            _module(name).install()
        except Exception as error:
            # an interpreter that was not foreseen: the others serve
            message = "repro-gate: %s cannot be watched here: %s: %s\n"
            sys.stderr.write(message % (name, type(error).__name__, error))
    return USES


def _module(name: str) -> Any:
    return importlib.import_module("." + name, __name__)


def uses() -> Any:
    """Return the uses of this process; None if the configuration names no factor."""
    return _USES[0] if _USES else None


def torch_arrived(torch: Any) -> None:
    """Wrap what of torch itself is a factor's."""
    for name in ("entropy", "addresses", "memory", "threads"):
        if _USES and _USES[0].wants(name):
            _module(name).torch_arrived(torch)


def for_child(
    environment: Mapping[str, str], command: Sequence[Any]
) -> tuple[dict[str, str], Sequence[Any]]:
    """Return what the environment of a child gets that is about to be started, and its command."""
    if not _USES:
        return {}, command
    from . import hashing

    ordinal = _USES[0].child_variable(hashing.is_python(command))
    seed, command = hashing.of_child(environment, command)
    return {**seed, **ordinal}, command
