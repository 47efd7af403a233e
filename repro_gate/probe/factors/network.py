"""What comes in over the network: the bytes that Python's sockets receive, and TLS on top of them.

It is watched only, by line. A connection to a port that a process of the training listens on is its
own business. What C++ receives (gloo, NCCL, a database driver), and TLS of asyncio, is out of
sight.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from .. import imports
from .use import USES, Marks, busy

NAME = "network"
_PEEK = 2  # MSG_PEEK
# bytes, from which on what was received is one answer and not one for each line
_LINES = 1 << 16
_LISTENING = "listening"  # ports that a process of this run listens on


def install() -> None:
    """Wrap listening and receiving of `socket.socket`, and reading of `ssl.SSLSocket`: all that one
    receives comes through `read`, what is below is encrypted."""
    imports.wrap_later("socket", "socket.listen", _listen)
    for name, flags_at in (("recv", 1), ("recvfrom", 1), ("recv_into", 2)):
        imports.wrap_later(
            "socket", f"socket.{name}", functools.partial(_receive, flags_at)
        )
    imports.wrap_later("ssl", "SSLSocket.read", functools.partial(_receive, 2))


def _listen(original: Any, sock: Any, *args: Any) -> Any:
    answer = original(sock, *args)
    # a socket of this machine's file system has no port
    with contextlib.suppress(Exception):
        Marks(_LISTENING).add(_port(sock.getsockname()))
    return answer


def _port(address: Any) -> str:
    return str(int(address[1]))


def _receive(
    flags_at: int, original: Any, sock: Any, *args: Any, **options: Any
) -> Any:
    """Receive; what comes is the answer, the first of a pair, or in a buffer that was given, as
    many bytes as the answer is."""
    answer = original(sock, *args, **options)
    flags = options.get("flags", args[flags_at] if len(args) > flags_at else 0)
    data = answer[0] if isinstance(answer, tuple) else answer
    if isinstance(answer, int):
        buffers = [
            item for item in (*args, *options.values()) if not isinstance(item, int)
        ]
        data = memoryview(buffers[0]).cast("B")[:answer]
    if not flags & _PEEK and not busy():
        _note(sock, data)
    return answer


def _note(sock: Any, data: Any) -> None:
    """Note what the training got of one connection, unless a process of its own is at the other
    end. Raises nothing."""
    # not connected, or a socket of this machine's file system
    with contextlib.suppress(Exception):
        peer = sock.getpeername()
        own = Marks(_LISTENING)
        if own.has(_port(peer)) or own.has(_port(sock.getsockname())):
            return
        source = f"{peer[0]}:{peer[1]}"
        data = bytes(data)
        for piece in data.splitlines(keepends=True) if len(data) < _LINES else [data]:
            USES.note(NAME, source, piece, outside=True)
