"""What comes in over the network: the bytes that Python's sockets receive, and TLS on top of them.

It is watched only, by line. A connection to a port that a process of the training listens on is its
own business. What C++ receives (gloo, NCCL, a database driver), and TLS of asyncio, is out of
sight.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from .. import imports, session
from .use import USES, busy

NAME = "network"
_PEEK = 2  # MSG_PEEK
_LINES = 1 << 16  # bytes, from which on what was received is one answer and not one for each line


def install() -> None:
    """Wrap listening and receiving of `socket.socket`, and reading of `ssl.SSLSocket`: all that one
    receives comes through `read`, what is below is encrypted."""
    for name, around in (
        ("listen", _listen),
        ("recv", _receive),
        ("recvfrom", _receive),
        ("recv_into", _receive_into),
    ):
        imports.wrap_later("socket", "socket." + name, around)
    imports.wrap_later("ssl", "SSLSocket.read", _read_tls)


def _listen(original: Any, sock: Any, *args: Any) -> Any:
    answer = original(sock, *args)
    with contextlib.suppress(Exception):  # a socket of this machine's file system has no port
        mark = _mark(sock.getsockname())
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        open(mark, "wb").close()
    return answer


def _mark(address: Any) -> str:
    """Return the file that stands for a port which a process of this run listens on."""
    traces = session.current().config["traces"]
    return os.path.join(traces, "listening", str(int(address[1])))


def _receive(original: Any, sock: Any, most: int, flags: int = 0) -> Any:
    found = original(sock, most, flags)
    _note(sock, found[0] if isinstance(found, tuple) else found, flags)
    return found


def _receive_into(original: Any, sock: Any, buffer: Any, most: int = 0, flags: int = 0) -> Any:
    count = original(sock, buffer, most, flags)
    _note(sock, memoryview(buffer).cast("B")[:count], flags)
    return count


def _read_tls(original: Any, sock: Any, most: int = 1024, buffer: Any = None) -> Any:
    found = original(sock, most, buffer)
    _note(sock, found if buffer is None else memoryview(buffer).cast("B")[:found], 0)
    return found


def _note(sock: Any, data: Any, flags: int) -> None:
    """Note what the training got of one connection, unless a process of its own is at the other
    end. Raises nothing."""
    if flags & _PEEK or busy():
        return
    try:
        peer = sock.getpeername()
        if any(map(os.path.lexists, map(_mark, (peer, sock.getsockname())))):
            return
        frame, data = sys._getframe(2), bytes(data)
        for piece in data.splitlines(keepends=True) if len(data) < _LINES else [data]:
            USES.note(NAME, "%s:%s" % peer[:2], piece, frame, direct=True, outside=True)
    except Exception:
        return  # not connected, or a socket of this machine's file system
