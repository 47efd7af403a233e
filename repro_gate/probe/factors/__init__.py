"""The factors in the training's process: each can be watched, pinned or varied, as the run's
configuration says; what comes from outside the process (files, network, commands) is watched only.
One file for each.

Nothing is imported or replaced where the configuration names none: a gate run that passes pays
nothing for a diagnosis.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Mapping, Sequence, Tuple

_USES: List[Any] = []  # this process's, if the configuration names a factor


def start(config: Dict[str, Any], folders: Dict[str, str]) -> Any:
    """Watch, pin or vary what `config` names, in this process from here on; None where it names
    nothing.

    `config`: `watch` (bool), `pin` (factor -> None for every use, or the sites [file, line]),
    `vary` (factors). `folders` are the run's own by the name of what varies them.
    """
    if not any(config.get(name) for name in ("watch", "pin", "vary")):
        return None
    from . import (
        addresses,
        clock,
        entropy,
        files,
        hashing,
        identity,
        listing,
        memory,
        network,
        surroundings,
        threads,
    )
    from .use import USES

    USES.start(config)
    _USES[:] = [USES]
    os.register_at_fork(before=USES.forking, after_in_child=USES.born)
    # before all others: they wrap the same calls, and hand on to these
    for outside in (files, network) if USES.watch else ():
        outside.install()
    for module in (hashing, entropy, clock, listing, identity, addresses, memory, threads):
        if USES.wants(module.NAME):
            try:
                module.install()
            except Exception as error:  # an interpreter that was not foreseen: the others serve
                sys.stderr.write(
                    "repro-gate: %s cannot be watched here: %s: %s\n"
                    % (module.NAME, type(error).__name__, error)
                )
    surroundings.install(config, folders)
    return USES


def uses() -> Any:
    """The uses of this process; None where the configuration names no factor."""
    return _USES[0] if _USES else None


def torch_arrived(torch: Any) -> None:
    """What of torch itself is a factor's."""
    if _USES:
        from . import addresses, entropy, memory, threads

        for module in (entropy, addresses, memory, threads):
            if _USES[0].wants(module.NAME):
                module.torch_arrived(torch)


def for_child(
    environment: Mapping[str, str], command: Sequence[Any]
) -> Tuple[Dict[str, str], Sequence[Any]]:
    """Return what the environment of a child gets that is about to be started, and its command."""
    if not _USES:
        return {}, command
    from . import hashing

    ordinal = _USES[0].child_variable(hashing.is_python(command))
    seed, command = hashing.of_child(environment, command)
    return {**seed, **ordinal}, command
