"""What comes in over the network: the bytes that Python's sockets receive, and TLS on top of them.

It is watched only, by line. A connection to a port that a process of the training listens on is its
own business. What C++ receives (gloo, NCCL, a database driver), and TLS of asyncio, is out of
sight.
"""

from __future__ import annotations

import contextlib
from typing import Any

from .. import imports
from .use import BUSY, is_marked, mark, note

NAME = "network"
# bytes, from which on what was received is one answer and not one for each line
_LINES = 1 << 16
_LISTENING = "listening"  # a mark: ports that a process of this run listens on


def install() -> None:
    """Wrap listening and receiving of `socket.socket`, and reading of `ssl.SSLSocket`: all that one
    receives comes through `read`, what is below is encrypted."""
    imports.wrap_later("socket", "socket.listen", _listen)
    names = "socket.recv socket.recvfrom socket.recv_into"
    imports.wrap_later("socket", names, _receive)
    imports.wrap_later("ssl", "SSLSocket.read", _receive)


def _listen(original: Any, sock: Any, *args: Any) -> Any:
    answer = original(sock, *args)
    # a socket of this machine's file system has no port
    with contextlib.suppress(Exception):
        mark(_LISTENING, f"{sock.getsockname()[1]:d}")
    return answer


def _receive(original: Any, sock: Any, *args: Any, **options: Any) -> Any:
    """Receive; what comes is the answer, the first of a pair, or in a buffer that was given, as
    many bytes as the answer is. Note it, unless a process of the training is at the other end."""
    answer = original(sock, *args, **options)
    # not connected, or a socket of this machine's file system
    with contextlib.suppress(Exception):
        peer = sock.getpeername()
        own = sock.getsockname()
        ours = [is_marked(_LISTENING, f"{place[1]:d}") for place in (peer, own)]
        if BUSY.depth or any(ours):
            return answer
        data = answer
        if isinstance(answer, tuple):
            data = answer[0]
        elif isinstance(answer, int):
            given = (*args, *options.values())
            [buffer] = (item for item in given if not isinstance(item, int))
            data = memoryview(buffer).cast("B")[:answer].tobytes()
        pieces = [data]
        if len(data) < _LINES:
            pieces = data.splitlines(keepends=True)
        source = f"{peer[0]}:{peer[1]}"
        for piece in pieces:
            note(NAME, source, piece, outside=True)
    return answer
