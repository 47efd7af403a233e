"""Watches, through Python's audit hooks, what reaches outside: files that are opened for reading
are handed to `opened`, network connections are noted, writes to declared data are refused.

Declared data is linked into the workspace; the link itself cannot forbid a write to the one
original, least of all to root.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

from . import flags, session
from .entropy import Draws
from .opened import Opened, purpose

# among their arguments are the paths that change
_REPLACE = ("os.remove", "os.rmdir", "os.rename", "shutil.rmtree")
_LOCAL = ("127.", "::1", "localhost", "0.0.0.0", "::ffff:127.")
_RANDOM = ("/dev/urandom", "/dev/random")
_REFUSAL = "repro-gate: declared data is read-only; write to a path of your own"
_DATAGRAM = 2  # SOCK_DGRAM; the module is not imported for it
Args = tuple[Any, ...]


def install(config: dict[str, Any], files: Opened, draws: Draws) -> None:
    """Add the audit hook of this process; it cannot be taken off again. `files` and `draws` are
    told what is opened.

    The hook raises nothing but the refusal to change declared data: PermissionError.
    """
    protected = tuple(map(os.path.realpath, config["data"]))
    handlers = _handlers(files, draws, protected)

    def hook(event: str, args: Args) -> None:
        handler = handlers.get(event)
        if handler is None:
            return
        try:
            handler(args)
        except PermissionError as error:
            if error.strerror == _REFUSAL:
                raise
        except Exception:
            # anything else is this file's mistake, or an event that is not Python's: the call that
            # is watched goes on
            return

    sys.addaudithook(hook)


def _handlers(
    files: Opened, draws: Draws, protected: tuple[str, ...]
) -> dict[str, Callable[[Args], None]]:
    def refuse(path: Any) -> None:
        if protected and isinstance(path, (str, bytes, os.PathLike)):
            real = os.path.realpath(os.fsdecode(path))
            below = real + os.sep
            if any(below.startswith(item + os.sep) for item in protected):
                raise PermissionError(13, _REFUSAL, real)

    def opening(args: Args) -> None:
        path, mode, flags = args[:3]
        existing, writes = purpose(mode, flags)
        if not writes:
            files.read(path)
            if path in _RANDOM:
                draws.device(path)
            return
        refuse(path)
        if existing:
            reads = "+" in mode if isinstance(mode, str) else bool(flags & os.O_RDWR)
            files.look(path, reads)

    def loading(args: Args) -> None:
        if os.sep in os.fsdecode(args[0]):
            files.read(args[0])

    def replacing(args: Args) -> None:
        for path in args:
            # a link itself may go
            if isinstance(path, (str, bytes, os.PathLike)) and not os.path.islink(path):
                refuse(path)

    return {
        "open": opening,
        # the file of an extension module
        "import": lambda args: files.read(args[1]) if args[1] else None,
        "os.listdir": lambda args: files.listed(args[0]),
        "os.scandir": lambda args: files.listed(args[0]),
        "ctypes.dlopen": loading,
        "sqlite3.connect": loading,
        "os.chdir": lambda args: files.known.clear(),
        "os.putenv": lambda args: flags.variable_set(*args),
        "os.unsetenv": lambda args: flags.variable_set(*args),
        "os.exec": lambda args: session.current().flush(),
        "sys.excepthook": lambda args: vars(session.current()).update(failed=True),
        "socket.connect": _connected,
        "socket.sendto": _sent,
        "socket.sendmsg": _sent,
        "os.truncate": lambda args: refuse(args[0]),
        **dict.fromkeys(_REPLACE, replacing),
    }


def _connected(args: Args) -> None:
    """Note a socket that is connected, but for a datagram's: that sends nothing, it is done to
    learn one's own address."""
    if getattr(args[0], "type", 0) != _DATAGRAM:
        _sent(args)


def _sent(args: Args) -> None:
    """Note a connection that leaves this machine, each address once."""
    address = args[1] if isinstance(args[1], tuple) else ()
    if address and not str(address[0]).startswith(_LOCAL):
        text = ":".join(map(str, address[:2]))[:300]  # a CAN bus has no port
        session.current().notice("network", rows=(text,))
