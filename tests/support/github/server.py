"""A GitHub of our own for tests: strict, stateful, on loopback. It serves what the gate asks of
GitHub's API and nothing else.

What GitHub would not accept is answered as GitHub answers it; what a careful client does not do (an
unknown path, a missing header, a page of 200) is also noted in `faults`.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

__all__ = ["BOT", "CUT", "Answer", "GitHub"]

BOT = "github-actions[bot]"
REPOSITORY_ID = 1296269  # Link headers name the repository by its number, as GitHub's do
BODY_CHARACTERS = 65_536
_CHANGING = ("POST /repos", "PATCH ", "DELETE ")
_VIEWER = re.compile(r"\s*(query(\s+\w+)?\s*)?\{\s*viewer\s*\{\s*login\s*\}\s*\}\s*")
_PARAMETERS = {  # of the lists, beside `per_page` and `page`
    "pulls": {"state", "head", "base", "sort", "direction"},
    "comments": {"since"},
}


@dataclass(frozen=True)
class Answer:
    """One answer. A `body` of None sends none (204), bytes are sent as they are, else JSON."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


CUT = Answer(0)  # no answer at all: the connection ends
Hook = Callable[[str, str], Answer | None]


class Refused(Exception):
    """An answer that is no success. `fault`: what a careful client would not have done."""

    def __init__(
        self, status: int, message: str, fault: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"message": message, "status": str(status)}, headers or {})
        self.fault = fault


@dataclass
class Request:
    """One request as it came. `path` is decoded and without its query; header names are lower
    case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Refused(400, "Problems parsing JSON", "a body that is not a JSON object")
        return found

    def check(self, *, graphql: bool) -> None:
        """What every request must have, whatever it asks for."""
        kind = self.headers.get("content-type", "").partition(";")[0]
        if not self.headers.get("user-agent"):
            raise Refused(403, "Request forbidden by administrative rules", "no User-Agent")
        if self.body and (kind != "application/json" or self.method in {"GET", "DELETE"}):
            raise Refused(415, "Unsupported Media Type", f"a body of {kind!r} with {self.method}")
        wanted = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        for name, value in wanted.items() if not graphql else ():
            if self.headers.get(name) != value:
                raise Refused(415, "Unsupported", f"{name}: {self.headers.get(name)}")


@dataclass
class Pull:
    """A pull request. `head_repository` is None where the fork has been deleted."""

    number: int
    head_sha: str
    head_ref: str
    head_repository: str | None
    base_repository: str
    base_ref: str = "main"
    state: str = "open"

    def is_from(self, head: str) -> bool:
        """Whether `head`, `owner:branch`, is where it comes from. Logins do not tell case apart,
        branches do."""
        owner, _, branch = head.partition(":")
        ours = (self.head_repository or "unknown/").partition("/")[0]
        return ours.lower() == owner.lower() and self.head_ref == branch

    def shown(self) -> dict[str, Any]:
        """As the API gives it: what a client may look at."""
        head = _end(self.head_ref, self.head_sha, self.head_repository)
        base = _end(self.base_ref, "0" * 40, self.base_repository)
        return {"number": self.number, "state": self.state, "head": head, "base": base}


def _end(ref: str, sha: str, of: str | None) -> dict[str, Any]:
    return {"ref": ref, "sha": sha, "repo": of and {"id": 1, "full_name": of}}


@dataclass
class GitHub:
    """One repository with its pull requests and their conversations. `before` and `after` are
    called for each request with its method and path (`/repos/…`), outside the lock. An answer that
    they return is sent instead (`CUT`: the connection ends); where `after` does so, what was asked
    is done all the same.
    """

    repository: str = "octo-org/trainer"
    enterprise: bool = False  # paths as on GitHub Enterprise Server: /api/v3 and /api/graphql
    before: Hook | None = None
    after: Hook | None = None
    on_write: Callable[[dict[str, Any]], None] | None = None
    # `GET /repos/o/r/pulls/7`, in the order of arrival
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._pulls: dict[int, Pull] = {}
        self._comments: dict[int, tuple[int, dict[str, Any]]] = {}  # id: pull request, as shown
        self._tokens: dict[str, tuple[str, bool]] = {}  # whose, and whether it may write
        self._ids = itertools.count(1_500_000_001)

    def __enter__(self) -> GitHub:
        self._http = _Listener(("127.0.0.1", 0), _Handler)
        self._http.answer = self._handle
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    # What a test sets up and looks at.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}" + ("/api/v3" if self.enterprise else "")

    @property
    def graphql_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{'/api' if self.enterprise else ''}/graphql"

    def token(self, login: str = BOT, write: bool = True, value: str | None = None) -> str:
        """A token of `login`. A name that ends in `[bot]` is an app's: it may not ask `GET
        /user`."""
        made = value or ("ghs_" if login.endswith("[bot]") else "ghp_") + secrets.token_hex(18)
        self._tokens[made] = login, write
        return made

    def add_pull(
        self,
        number: int,
        head_sha: str,
        head_ref: str = "topic",
        head_repository: str | None = "",
        **more: Any,
    ) -> None:
        """A pull request. `head_repository`: empty for this repository, None where the fork has
        been deleted."""
        head = self.repository if head_repository == "" else head_repository
        with self._lock:
            self._pulls[number] = Pull(number, head_sha, head_ref, head, self.repository, **more)

    def change_pull(self, number: int, **fields: Any) -> None:
        """Move its head (`head_sha=…`) or close it (`state="closed"`)."""
        with self._lock:
            for name, value in fields.items():
                assert hasattr(self._pulls[number], name)
                setattr(self._pulls[number], name, value)

    def add_comment(self, number: int, login: str, body: str) -> int:
        """A comment that somebody else makes, or has made before. Its id."""
        with self._lock:
            made = next(self._ids)
            page = f"https://github.com/{self.repository}/pull/{number}#issuecomment-{made}"
            shown = {"id": made, "html_url": page, "user": {"login": login, "id": 1}, "body": body}
            self._comments[made] = number, shown
            return made

    def change_comment(self, comment_id: int, body: str | None) -> None:
        """Edit it by hand; None deletes it."""
        with self._lock:
            if body is None:
                del self._comments[comment_id]
            else:
                self._comments[comment_id][1]["body"] = body

    def comments(self, number: int) -> list[dict[str, Any]]:
        """The conversation as GitHub's API lists it, all of it, oldest first."""
        with self._lock:
            found = [dict(shown) for at, shown in self._comments.values() if at == number]
        return sorted(found, key=lambda shown: int(shown["id"]))

    def bodies(self, number: int) -> list[str]:
        return [str(item["body"]) for item in self.comments(number)]

    @property
    def writes(self) -> list[str]:
        """The requests that change something, in the order of arrival."""
        return [line for line in self.requests if line.startswith(_CHANGING)]

    # One request.

    def _handle(self, request: Request) -> Answer:
        if self.enterprise:
            request.path = request.path.removeprefix("/api/v3")
        line = f"{request.method} {request.path}"
        with self._lock:
            self.requests.append(line)
        early = self.before(request.method, request.path) if self.before else None
        if early is not None:
            return early
        with self._lock:
            try:
                answer = self._answer(request)
            except Refused as refused:
                answer = refused.answer
                if refused.fault:
                    self.faults.append(f"{line}: {refused.fault}")
            if self.on_write and line.startswith(_CHANGING):
                self.on_write({"event": "write", "method": request.method, "path": request.path})
        late = self.after(request.method, request.path) if self.after else None
        return answer if late is None else late

    def _answer(self, request: Request) -> Answer:
        method, path = request.method, request.path
        graphql = path == ("/api/graphql" if self.enterprise else "/graphql")
        request.check(graphql=graphql)
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or value not in self._tokens:
            raise Refused(401, "Bad credentials", "" if scheme else "no bearer token")
        login, write = self._tokens[value]
        app = login.endswith("[bot]")
        if graphql and method == "POST":
            if not _VIEWER.fullmatch(str(request.document().get("query"))):
                raise Refused(200, "Parse error", "another query than viewer's login")
            return Answer(200, {"data": {"viewer": {"login": login}}})
        if (method, path) == ("GET", "/user"):
            if app:
                raise Refused(403, "Resource not accessible by integration")
            return Answer(200, {"login": login})
        below = rf"/(?:repos/{re.escape(self.repository)}|repositories/{REPOSITORY_ID})(/.+)"
        named = re.fullmatch(below, path, re.IGNORECASE | re.DOTALL)
        if method != "GET" and not write:
            what = "integration" if app else "personal access token"
            lacking = {"x-accepted-github-permissions": "issues=write; pull_requests=write"}
            raise Refused(403, f"Resource not accessible by {what}", headers=lacking)
        answer = self._of_repository(request, login, named[1]) if named else None
        if answer is None:
            raise Refused(404, "Not Found", "an unknown path")
        return answer

    def _of_repository(self, request: Request, login: str, rest: str) -> Answer | None:
        method = request.method
        if found := re.fullmatch(r"/pulls/(\d+)", rest):
            return Answer(200, self._pull(found[1]).shown()) if method == "GET" else None
        if rest == "/pulls" and method == "GET":
            return self._page(request, rest, self._chosen(request))
        if method == "GET" and (found := re.fullmatch(r"/commits/([0-9a-f]{40,64})/pulls", rest)):
            at = [pull.shown() for pull in self._pulls.values() if pull.head_sha == found[1]]
            if not at:
                raise Refused(422, f"No commit found for SHA: {found[1]}")
            return self._page(request, rest, at)
        if found := re.fullmatch(r"/issues/(\d+)/comments", rest):
            pull = self._pull(found[1])
            if method == "GET":
                return self._page(request, rest, self.comments(pull.number))
            made = self.add_comment(pull.number, login, _text(request))
            return Answer(201, self._comments[made][1]) if method == "POST" else None
        if found := re.fullmatch(r"/issues/comments/(\d+)", rest):
            number = int(found[1])
            if number not in self._comments:
                raise Refused(404, "Not Found")
            if method == "PATCH":
                self.change_comment(number, _text(request))
                return Answer(200, self._comments[number][1])
            if method == "DELETE":
                self.change_comment(number, None)
                return Answer(204)
        return None

    def _pull(self, number: str) -> Pull:
        if int(number) not in self._pulls:
            raise Refused(404, "Not Found")
        return self._pulls[int(number)]

    def _chosen(self, request: Request) -> list[dict[str, Any]]:
        state, head = request.query.get("state", "open"), request.query.get("head")
        if head is not None and not re.fullmatch(r"[^:]+:.+", head, re.DOTALL):
            raise Refused(422, "Validation Failed", f"head is OWNER:BRANCH, not {head!r}")
        return [
            pull.shown()
            for pull in sorted(self._pulls.values(), key=lambda pull: -pull.number)
            if state in ("all", pull.state) and (head is None or pull.is_from(head))
        ]

    def _page(self, request: Request, rest: str, found: Sequence[object]) -> Answer:
        """One page of a list, with the Link header to the next and the last."""
        known = {"per_page", "page"} | _PARAMETERS.get(rest.rpartition("/")[2], set())
        size, here = (request.query.get(*item) for item in (("per_page", "30"), ("page", "1")))
        numbers = re.fullmatch(r"100|[1-9]\d?", size) and re.fullmatch(r"[1-9]\d*", here)
        if not numbers or not set(request.query) <= known:
            raise Refused(400, "Bad request", f"not a query of {rest}: {dict(request.query)}")
        count, number = int(size), int(here)
        last = max(-(-len(found) // count), 1)
        links = {"next": number + 1, "last": last} if number < last else {}
        at = f"{self.url}/repositories/{REPOSITORY_ID}{rest}"
        of = [(urlencode({**request.query, "page": to}), name) for name, to in links.items()]
        header = ", ".join(f'<{at}?{query}>; rel="{name}"' for query, name in of)
        shown = found[(number - 1) * count : number * count]
        return Answer(200, shown, {"Link": header} if header else {})


def _text(request: Request) -> str:
    document = request.document()
    body = document.get("body")
    if set(document) != {"body"} or not isinstance(body, str):
        raise Refused(422, "Invalid request.", f"fields {document!r} instead of `body`")
    if not body.strip() or len(body) > BODY_CHARACTERS:
        raise Refused(422, f"Body is blank or too long (maximum is {BODY_CHARACTERS} characters)")
    return body


class _Listener(ThreadingHTTPServer):
    """Says nothing of a client that has gone: tests of cut connections do that."""

    daemon_threads = True
    answer: Callable[[Request], Answer]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that a connection may stay idle
    # head and body leave together: two small packets would wait for each other's acknowledgement
    wbufsize = 65_536

    def _serve(self) -> None:
        target = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        answer = self.server.answer(
            Request(self.command, unquote(target.path), query, headers, body)
        )
        if answer is CUT:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = b"" if answer.body is None else answer.body
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent: what came is in `GitHub.requests`."""
