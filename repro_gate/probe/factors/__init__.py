"""The factors in the training's process: each can be watched, pinned or varied, as the run's
configuration says; what comes from outside the process (files, network, commands) is watched only.
One file for each, and one for the timers of the clock.

None is imported and nothing is replaced where the configuration names none: a gate run that passes
pays nothing for a diagnosis.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .use import CERTAIN, PROCESS_VARIABLE, RUN, configure, next_child, wants

# In the order in which they are installed. Files come last: what is below them does not note what
# it asks for itself.
_FACTORS = (
    "hashing",
    "entropy",
    "clock",
    "listing",
    "identity",
    "autotune",
    "addresses",
    "memory",
    "threads",
    "environment",
    "files",
    "network",
)
_OF_TORCH = ("entropy", "addresses", "memory", "threads")


def start(config: dict[str, Any]) -> None:
    """Watch, pin or vary what `config["factors"]` names, in this process from here on: `watch`
    (bool), `pin` (factor -> None for every use, or the sites [file, line]), `vary` (factors),
    `vary_at` (sites), `surroundings` (bool)."""
    configure(config)
    for name in filter(wants, _FACTORS):
        try:
            _module(name).install()
        except Exception as error:
            # an interpreter that was not foreseen: the others serve
            message = "repro-gate: %s cannot be watched here: %s: %s\n"
            sys.stderr.write(message % (name, type(error).__name__, error))


def _module(name: str) -> Any:
    return importlib.import_module("." + name, __name__)


def torch_arrived(torch: Any) -> None:
    """Wrap what of torch itself is a factor's."""
    for name in filter(wants, _OF_TORCH):
        _module(name).torch_arrived(torch)


def for_child(
    environment: Mapping[str, str], command: Sequence[Any]
) -> tuple[dict[str, str], Sequence[Any]]:
    """Return what the environment of a child gets that is about to be started, and its command."""
    if not RUN.ordinal:
        return {}, command
    from . import hashing

    ordinal = next_child() + CERTAIN * hashing.is_python(command)
    seed, command = hashing.of_child(environment, command)
    return {**seed, PROCESS_VARIABLE: ordinal}, command
