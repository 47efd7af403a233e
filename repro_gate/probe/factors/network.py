"""What comes in over the network: the bytes that Python's sockets receive, and TLS on top of them.

It is watched only, by line. A connection to a port that a process of the training listens on is its
own business. What C++ receives (gloo, NCCL, a database driver), and TLS of asyncio, is out of
sight.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from typing import Any

from .. import imports, session, source_line
from ..patch import wrap
from .use import Uses, busy

NAME = "network"
_PEEK = 2  # MSG_PEEK
_LINES = 1 << 16  # bytes, from which on what was received is one answer and not one for each line


def install(uses: Uses) -> None:
    """Wrap connecting, listening and receiving of `socket.socket`, and reading of
    `ssl.SSLSocket`."""
    connections = _Connections(uses)
    imports.after_import("socket", connections.socket_arrived)
    imports.after_import("ssl", connections.ssl_arrived)


class _Connections:
    """The connections that this process opened to the world, each with its peer."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._peers: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
        self._ports = os.path.join(session.current().config["traces"], "listening")
        self._families: Any = ()

    def socket_arrived(self, module: Any) -> None:
        """`socket.socket` is a Python class on top of C's."""
        self._families = (module.AF_INET, module.AF_INET6)
        for name, around in (
            ("listen", self._listen),
            ("connect", self._connect),
            ("connect_ex", self._connect),
            ("recv", self._receive),
            ("recvfrom", self._receive),
            ("recv_into", self._receive_into),
        ):
            wrap(module.socket, name, around)

    def ssl_arrived(self, module: Any) -> None:
        """All that an `SSLSocket` receives comes through `read`; what is below is encrypted."""
        wrap(module.SSLSocket, "read", self._read_tls)
        module.SSLSocket._create = functools.partial(self._wrapped, module.SSLSocket._create)
        for name in ("connect", "connect_ex"):
            wrap(module.SSLSocket, name, self._connect)

    def _listen(self, original: Any, sock: Any, *args: Any) -> Any:
        answer = original(sock, *args)
        try:
            port = int(sock.getsockname()[1])
            os.makedirs(self._ports, exist_ok=True)
            open(os.path.join(self._ports, str(port)), "wb").close()
        except (OSError, TypeError, ValueError, IndexError):
            pass  # a socket of this machine's file system
        return answer

    def _connect(self, original: Any, sock: Any, address: Any) -> Any:
        try:
            return original(sock, address)
        finally:  # asyncio's is open when it is written to, after an error that says so
            outside = (
                isinstance(address, tuple)
                and len(address) > 1
                and sock.family in self._families
                and not os.path.lexists(os.path.join(self._ports, str(address[1])))
            )
            if outside:
                self._peers[sock] = ("%s:%s" % address[:2])[:120]

    def _wrapped(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A socket that was connected before becomes another object."""
        peer = self._peers.get(args[0] if args else kwargs.get("sock"))
        tls = original(*args, **kwargs)
        if peer is not None:
            self._peers[tls] = peer
        return tls

    def _receive(self, original: Any, sock: Any, most: int, flags: int = 0) -> Any:
        found = original(sock, most, flags)
        self._note(sock, found[0] if isinstance(found, tuple) else found, flags)
        return found

    def _receive_into(
        self, original: Any, sock: Any, buffer: Any, most: int = 0, flags: int = 0
    ) -> Any:
        count = original(sock, buffer, most, flags)
        self._note(sock, memoryview(buffer).cast("B")[:count], flags)
        return count

    def _read_tls(self, original: Any, sock: Any, most: int = 1024, buffer: Any = None) -> Any:
        found = original(sock, most, buffer)
        self._note(sock, found if buffer is None else memoryview(buffer).cast("B")[:found], 0)
        return found

    def _note(self, sock: Any, data: Any, flags: int) -> None:
        """Note what the training got of one connection."""
        peer = self._peers.get(sock)
        if peer is None or flags & _PEEK or busy():
            return
        frame = source_line.nearest_frame(sys._getframe(2))
        site, data = source_line.nearest(frame), bytes(data)
        for piece in data.splitlines(keepends=True) if len(data) < _LINES else [data]:
            self._uses.note(NAME, peer, site, piece, frame, outside=True)
