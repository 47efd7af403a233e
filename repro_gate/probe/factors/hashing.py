"""The hash seed of strings in Python children that drop `PYTHONHASHSEED`, or are told to ignore it (`python -I`, `-E`).

Pinned, the variable goes back into their environment and these options are taken out of their command. Varied, a program that a line of
the workspace starts gets another seed than its parent has; what `multiprocessing` starts goes on with the same work, and keeps it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Mapping

from .. import source_line
from . import uses

NAME = "hashing"
_VARIABLE = "PYTHONHASHSEED"
_SEED = os.environ.get(_VARIABLE)  # as the gate started this process; children hand it on
_DEAF = ("-I", "-E")


def hash_seed(environment: Mapping[str, str]) -> Dict[str, str]:
    """What a child's environment gets: the seed, where it lacks it and the factor is pinned; else nothing."""
    if _SEED is None or environment.get(_VARIABLE) == _SEED:
        return {}
    return {_VARIABLE: _SEED} if _noted("its environment lacks " + _VARIABLE) else {}


def other_seed(command: Any, environment: Mapping[str, str]) -> Dict[str, str]:
    """What the environment of a program that is started gets where the factor is varied."""
    found = uses()
    if found is None or NAME not in found.vary or _SEED is None or environment.get(_VARIABLE) != _SEED or not _SEED.isdecimal():
        return {}
    if any(b"multiprocessing" in os.fsencode(item) for item in list(command)[:10]) or not source_line.nearest(sys._getframe(1))[0]:
        return {}
    return {_VARIABLE: str((int(_SEED) + 1) % 2**32)}


def listening(command: Any) -> Any:
    """A child's command, without the options that ignore the environment where the factor is pinned."""
    given: List[Any] = list(command)
    if _SEED is None or not given or "python" not in os.path.basename(os.fsdecode(given[0])):
        return command
    deaf = [item for item in given[1:3] if os.fsdecode(item) in _DEAF]
    if not deaf or not _noted("python " + os.fsdecode(deaf[0])):
        return command
    return [given[0], *(item for item in given[1:] if item not in deaf)]


def _noted(source: str) -> bool:
    """Note a child whose hashes are random, and say whether the factor is pinned at the line that starts it."""
    found = uses()
    if found is None or not found.wants(NAME):
        return False
    frame = sys._getframe(2)
    site = source_line.nearest(frame)
    if found.watch:
        found.note(NAME, source, site, os.urandom(8), frame)
    return found.pinned(NAME, site)
