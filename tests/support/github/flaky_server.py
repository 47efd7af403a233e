"""A GitHub that misbehaves by script: each request takes the next reply, and what came is kept.
Used by the tests of the API client.

Strict: a request for which no reply is left is answered 599, which no client should ever see, and
kept as `unexpected`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.github.wire import QuietServer


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `document` is sent as JSON, `raw` as it is; `fault`: `hang`, `drop` (no
    answer), `cut` (half of it)."""

    status: int = 200
    document: object = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    fault: str = ""

    @property
    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return b"" if self.status == 204 else json.dumps(self.document).encode()


@dataclass(frozen=True)
class Asked:
    """One request as it arrived. Header names are in lower case."""

    method: str
    path: str  # with the query
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class FlakyServer:
    """The script and the record; `url` has no slash at its end."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.asked: list[Asked] = []
        self.unexpected: list[Asked] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = QuietServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def will(self, *replies: Reply) -> None:
        """Add to the script."""
        self.script += replies

    def take(self, asked: Asked) -> Reply:
        """Record a request and take its reply."""
        with self._lock:
            self.asked.append(asked)
            if not self.script:
                self.unexpected.append(asked)
                return Reply(599, {"message": f"nothing is scripted for {asked.line}"})
            return self.script.pop(0)

    def close(self) -> None:
        """End it; what hangs is let go first."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: FlakyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # head and body are two writes, and the second would wait 40 ms
        )

        def answer(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = server.take(Asked(self.command, self.path, headers, self.rfile.read(length)))
            if reply.fault == "hang":
                server.closing.wait(30)
            if reply.fault in {"hang", "drop"}:
                self.close_connection = True
                return
            body = reply.body
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            if reply.status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if reply.fault == "cut":
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                return
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):  # the client has read enough
                self.close_connection = True

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep standard error clean."""

    return Handler


@contextmanager
def flaky_server() -> Iterator[FlakyServer]:
    """A server that is ended with the block. A request that the script did not expect fails the
    test there."""
    server = FlakyServer()
    try:
        yield server
    finally:
        server.close()
    assert not server.unexpected, f"unscripted: {[asked.line for asked in server.unexpected]}"
