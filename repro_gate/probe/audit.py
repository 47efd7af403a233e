"""Watches, through Python's audit hooks, what reaches outside: network connections are noted, writes to declared data are refused.

Declared data is linked into the workspace; the link itself cannot forbid a write to the one original, least of all to root.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Tuple

from . import session

# event -> how many of its arguments are paths that change
_REPLACE = {"os.remove": 1, "os.rmdir": 1, "os.truncate": 1, "os.rename": 2, "shutil.rmtree": 1}
_LOCAL = ("127.", "::1", "localhost", "0.0.0.0", "::ffff:127.")


def install(config: Dict[str, Any]) -> None:
    """Add the audit hook of this process; it cannot be taken off again."""
    protected: Tuple[str, ...] = tuple(os.path.realpath(path) for path in config.get("data", ()))

    def hook(event: str, args: Tuple[Any, ...]) -> None:
        if event == "open":
            if protected and _writes(args) and isinstance(args[0], (str, bytes)):
                _refuse(os.path.realpath(os.fsdecode(args[0])), protected)
        elif event == "socket.connect":
            _connected(args[1])
        elif event in _REPLACE and protected:
            for path in args[: _REPLACE[event]]:
                if isinstance(path, (str, bytes)) and (event == "os.truncate" or not os.path.islink(path)):  # a link itself may go
                    _refuse(os.path.realpath(os.fsdecode(path)), protected)

    sys.addaudithook(hook)


def _writes(args: Tuple[Any, ...]) -> bool:
    mode, flags = args[1], args[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def _refuse(path: str, protected: Tuple[str, ...]) -> None:
    for item in protected:
        if path == item or path.startswith(item + os.sep):
            raise PermissionError(13, "repro-gate: declared data is read-only; write to a path of your own", path)


def _connected(address: Any) -> None:
    if isinstance(address, tuple) and address and not str(address[0]).startswith(_LOCAL):
        current = session.current()
        if current is not None:
            current.connected("%s:%s" % address[:2])
