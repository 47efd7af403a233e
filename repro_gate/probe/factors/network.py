"""What comes in over the network: the bytes that Python's sockets receive, and TLS on top of them.

Pinned, connections are made and requests are sent as ever, and the training reads what the first
run of the pair read on the same connection, in order of their opening at that line. A connection to
a port that a process of the training listens on is its own business. What C++ receives (gloo, NCCL,
a database driver), and TLS of asyncio, is out of sight.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Callable, Dict, Optional

from .. import imports, session, source_line
from ..patch import wrap
from .recording import Tap, readable, recording_of
from .use import Site, Uses, busy

NAME = "network"
_PEEK = 2  # MSG_PEEK
# `on` while a wrapped call is in progress: those that it is made of are no others
_BUSY = threading.local()


def wanted(config: Dict[str, Any]) -> bool:
    """Whether what comes in is to be watched or pinned."""
    return bool(config.get("watch")) or NAME in config.get("pin", ())


def install(uses: Uses) -> None:
    """Wrap connecting, listening and receiving of `socket.socket`, and reading of
    `ssl.SSLSocket`."""
    connections = _Connections(uses)
    imports.after_import("socket", connections.socket_arrived)
    imports.after_import("ssl", connections.ssl_arrived)


class _Connection:
    """One connection that this process opened to the world."""

    def __init__(self, peer: str, site: Site, key: object) -> None:
        self.peer, self.site, self.key = peer, site, key
        self.tap: Optional[Tap] = None
        self.decided = False  # whether it is replayed: at what is first received


class _Connections:
    """The connections of this process."""

    def __init__(self, uses: Uses) -> None:
        self._uses, self._recording = uses, recording_of(uses.config)
        self._known: "weakref.WeakKeyDictionary[Any, _Connection]" = weakref.WeakKeyDictionary()
        self._counts: Dict[Any, int] = {}
        self._ports = os.path.join(session.current().config["traces"], "listening")
        self._socket: Any = None

    def socket_arrived(self, module: Any) -> None:
        """`socket.socket` is a Python class on top of C's."""
        self._socket = module
        for name, around in (
            ("listen", self._listen),
            ("connect", self._connect),
            ("connect_ex", self._connect),
            ("recv", self._receive),
            ("recv_into", self._receive_into),
            ("recvfrom", self._receive_from),
        ):
            wrap(module.socket, name, around)

    def ssl_arrived(self, module: Any) -> None:
        """Where it has a TLS connection, all that an `SSLSocket` receives comes through `read`.
        What is below is encrypted: no replay."""
        wrap(module.SSLSocket, "read", self._read_tls)
        module.SSLSocket._create = functools.partial(self._wrapped, module.SSLSocket._create)
        for name in ("connect", "connect_ex"):
            wrap(module.SSLSocket, name, self._connect)

    def _listen(self, original: Any, sock: Any, *args: Any) -> Any:
        answer = original(sock, *args)
        try:
            port = sock.getsockname()[1]
            os.makedirs(self._ports, exist_ok=True)
            os.close(
                os.open(os.path.join(self._ports, str(int(port))), os.O_CREAT | os.O_WRONLY, 0o600)
            )
        except (OSError, TypeError, ValueError, IndexError):
            pass  # a socket of this machine's file system
        return answer

    def _connect(self, original: Any, sock: Any, address: Any) -> Any:
        if getattr(_BUSY, "on", False):
            return original(sock, address)
        _BUSY.on = True
        try:
            answer = original(sock, address)
        except BlockingIOError:
            # asyncio: it will be open when it is written to
            self._opened(sock, address, sys._getframe(2))
            raise
        finally:
            _BUSY.on = False
        self._opened(sock, address, sys._getframe(2))
        return answer

    def _opened(self, sock: Any, address: Any, frame: Optional[FrameType]) -> None:
        if (
            not isinstance(address, tuple)
            or len(address) < 2
            or sock.family not in (self._socket.AF_INET, self._socket.AF_INET6)
        ):
            return
        if os.access(os.path.join(self._ports, str(address[1])), os.F_OK):
            return
        site = source_line.nearest(frame)
        peer = ("%s:%s" % address[:2])[:120]
        key = (
            "network",
            site,
            self._uses.ordinal,
            "" if threading.current_thread() is threading.main_thread() else peer,
        )
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self._known[sock] = _Connection(peer, site, (*key, count))

    def _wrapped(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A socket that was connected before becomes another object."""
        connection = self._known.get(args[0] if args else kwargs.get("sock"))
        tls = original(*args, **kwargs)
        if connection is not None:
            self._known[tls] = connection
        return tls

    def _receive(self, original: Any, sock: Any, most: int, flags: int = 0) -> Any:
        return self._through(sock, lambda size: original(sock, size, flags), most, flags)

    def _receive_into(
        self, original: Any, sock: Any, buffer: Any, most: int = 0, flags: int = 0
    ) -> Any:
        size = most or memoryview(buffer).nbytes
        if getattr(_BUSY, "on", False) or sock not in self._known or flags & _PEEK:
            return original(sock, buffer, most, flags)

        def receive(count: int) -> bytes:
            held = bytearray(count)
            return bytes(held[: original(sock, held, count, flags)])

        data = self._through(sock, receive, size, flags)
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def _receive_from(self, original: Any, sock: Any, most: int, flags: int = 0) -> Any:
        sender: Any = None

        def receive(count: int) -> bytes:
            nonlocal sender
            data, sender = original(sock, count, flags)
            return bytes(data)

        return self._through(sock, receive, most, flags), sender

    def _read_tls(self, original: Any, sock: Any, most: int = 1024, buffer: Any = None) -> Any:
        size = (
            most
            if buffer is None
            else min(most or memoryview(buffer).nbytes, memoryview(buffer).nbytes)
        )
        data = self._through(sock, lambda count: bytes(original(sock, count)), size, 0)
        if buffer is None:
            return data
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def _through(self, sock: Any, receive: Callable[[int], bytes], most: int, flags: int) -> bytes:
        """What the training gets of one connection next."""
        connection = None if getattr(_BUSY, "on", False) or flags & _PEEK else self._known.get(sock)
        if connection is None:
            return receive(most)
        frame = source_line.nearest_frame(sys._getframe(3))
        site = source_line.nearest(frame)
        if not connection.decided:
            connection.decided = True
            if self._uses.pinned(NAME, site) or self._uses.pinned(NAME, connection.site):
                connection.tap = Tap(self._recording, connection.key, connection.peer)
        _BUSY.on = True
        try:
            data = (
                receive(most)
                if connection.tap is None
                else connection.tap.read(receive, functools.partial(_ready, sock), most)
            )
        finally:
            _BUSY.on = False
        if self._uses.watch and not busy():
            for piece in data.splitlines(keepends=True) if len(data) < 65536 else [data]:
                self._uses.note(NAME, connection.peer, site, piece, frame)
        return data


def _ready(sock: Any, seconds: float) -> bool:
    """Whether something comes in within so many seconds, as long as the socket itself would
    wait."""
    pending = getattr(sock, "pending", None)
    if pending is not None and pending():
        return True
    limit = sock.gettimeout()
    if limit is not None and limit <= seconds:
        return True  # it does not wait for longer: receiving says so
    return readable(sock.fileno(), seconds)
