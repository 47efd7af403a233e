"""HTTP on loopback for a server of our own: one request in, one answer out, hooks in between. Knows
nothing of GitHub.

Threads, kept-alive connections, answers in one packet; a hook may end a connection instead of
answering.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

BODY_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    """One request as it came. `path` is decoded and without its query; header names are lower
    case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    problems: tuple[str, ...] = ()  # what is wrong with it before anybody looks at what it asks for

    @property
    def line(self) -> str:
        """`GET /repos/o/r/pulls/7`: what a test compares with."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    """One answer. A `body` of None sends none (204), bytes are sent as they are, else JSON."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


CUT = Answer(0)  # no answer at all: the connection ends


class QuietServer(ThreadingHTTPServer):
    """Says nothing of a client that has gone: tests of cut connections do that."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Everything else is told on standard error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Server:
    """Listens from the moment it is made; `close` ends it. `handle` is called in a thread for each
    connection."""

    def __init__(
        self, handle: Callable[[Request], Answer], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        class Handler(_Handler):
            respond = staticmethod(handle)

        self._http = QuietServer((host, port), Handler)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Stop listening and wait for the thread that listens."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    respond: Callable[[Request], Answer]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "github-of-our-own", ""
    timeout = 60  # seconds that a connection may stay idle
    # head and body leave together: two small packets would wait for each other's acknowledgement
    wbufsize = 65_536

    def _serve(self) -> None:
        target = urlsplit(self.path)
        pairs = parse_qsl(target.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = headers.get("content-length", "0")
        problems = (
            []
            if len(dict(pairs)) == len(pairs)
            else [f"a query parameter stands twice: {target.query}"]
        )
        body = b""
        if not length.isdecimal() or int(length) > BODY_LIMIT or "transfer-encoding" in headers:
            problems.append("a body needs a Content-Length within the limit")
            self.close_connection = True
        else:
            body = self.rfile.read(int(length))
        self._send(
            self.respond(
                Request(
                    self.command, unquote(target.path), dict(pairs), headers, body, tuple(problems)
                )
            )
        )

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = _serve  # noqa: N815 - the base class looks for these names

    def _send(self, answer: Answer) -> None:
        if answer is CUT:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = b"" if answer.body is None else answer.body
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(answer.status)
        if answer.body is not None:
            self.send_header("Content-Type", "application/json; charset=utf-8")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent: what came is in `GitHub.requests`."""
