"""A GitHub of our own for tests: strict, stateful, on loopback. It serves what the gate asks of
GitHub's API and nothing else.

`GitHub` is a context manager for tests in one process; run as a module with `--pull 7:SHA --token
'github-actions[bot]=VALUE'`, it serves another process (a container) and prints one JSON line at
its start and at each write. What GitHub would not accept is answered as GitHub answers it; what a
careful client does not do (an unknown path, a missing header, a page of 200) is also noted in
`faults`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

from tests.support.github.shapes import (
    REPOSITORY_ID,
    Pull,
    Refused,
    Token,
    Written,
    body_of,
    check_headers,
    comment_json,
    document_of,
    must_write,
    number_of,
    only,
    page,
    pull_json,
)
from tests.support.github.wire import CUT, Answer, Request, Server

__all__ = ["BOT", "CUT", "Answer", "GitHub"]

BOT = "github-actions[bot]"
Hook = Callable[[str, str], Answer | None]
_VIEWER = re.compile(r"\s*(query(\s+\w+)?\s*)?\{\s*viewer\s*\{\s*login\s*\}\s*\}\s*")


@dataclass
class GitHub:
    """One repository with its pull requests and their conversations. `before` and `after` are
    called for each request with its method and path (`/repos/…`), outside the lock. An answer that
    they return is sent instead (`CUT`: the connection ends); where `after` does so, what was asked
    is done all the same.
    """

    repository: str = "octo-org/trainer"
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    enterprise: bool = False  # paths as on GitHub Enterprise Server: /api/v3 and /api/graphql
    before: Hook | None = None
    after: Hook | None = None
    on_write: Callable[[dict[str, Any]], None] | None = None
    # `GET /repos/o/r/pulls/7`, in the order of arrival
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._pulls: dict[int, Pull] = {}
        self._comments: dict[int, Written] = {}
        self._tokens: dict[str, Token] = {}
        self._ids = itertools.count(1_500_000_001)
        self._server: Server | None = None

    def __enter__(self) -> GitHub:
        self._server = Server(self._handle, self.host, self.port)
        self.port = self._server.port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    # What a test sets up and looks at.

    @property
    def url(self) -> str:
        """What `GITHUB_API_URL` would be."""
        return self._root + ("/api/v3" if self.enterprise else "")

    @property
    def graphql_url(self) -> str:
        """What `GITHUB_GRAPHQL_URL` would be."""
        return self._root + ("/api/graphql" if self.enterprise else "/graphql")

    @property
    def _root(self) -> str:
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"

    def token(self, login: str = BOT, write: bool = True, value: str | None = None) -> str:
        """A token of `login`. A name that ends in `[bot]` is an app's: it may not ask `GET
        /user`."""
        made = value or ("ghs_" if login.endswith("[bot]") else "ghp_") + secrets.token_hex(18)
        with self._lock:
            self._tokens[made] = Token(login, write)
        return made

    def add_pull(
        self,
        number: int,
        head_sha: str,
        head_ref: str = "topic",
        head_repository: str | None = "",
        base_ref: str = "main",
        state: str = "open",
    ) -> None:
        """A pull request. `head_repository`: empty for this repository, None where the fork has
        been deleted."""
        head = self.repository if head_repository == "" else head_repository
        with self._lock:
            self._pulls[number] = Pull(
                number, head_sha, head_ref, head, base_ref, state, base_repository=self.repository
            )

    def change_pull(self, number: int, **fields: Any) -> None:
        """Move its head (`head_sha=…`), close it (`state="closed"`), lock it (`locked=True`)."""
        with self._lock:
            for name, value in fields.items():
                assert hasattr(self._pulls[number], name)
                setattr(self._pulls[number], name, value)

    def add_comment(self, number: int, login: str, body: str) -> int:
        """A comment that somebody else makes, or has made before. Its id."""
        with self._lock:
            made = Written(
                next(self._ids),
                number,
                login,
                body,
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            )
            self._comments[made.id] = made
            return made.id

    def change_comment(self, comment_id: int, body: str | None) -> None:
        """Edit it by hand; None deletes it."""
        with self._lock:
            if body is None:
                del self._comments[comment_id]
            else:
                self._comments[comment_id].body = body

    def comments(self, number: int) -> list[dict[str, Any]]:
        """The conversation as GitHub's API lists it, all of it, oldest first."""
        with self._lock:
            found = sorted(
                (item for item in self._comments.values() if item.number == number),
                key=lambda item: item.id,
            )
            return [comment_json(item, self.repository, self.url) for item in found]

    def bodies(self, number: int) -> list[str]:
        """The texts alone."""
        return [str(item["body"]) for item in self.comments(number)]

    @property
    def writes(self) -> list[str]:
        """The requests that change something, in the order of arrival."""
        return [line for line in self.requests if _changes(line)]

    # One request.

    def _handle(self, request: Request) -> Answer:
        path = request.path.removeprefix("/api/v3") if self.enterprise else request.path
        with self._lock:
            self.requests.append(f"{request.method} {path}")
        early = self.before(request.method, path) if self.before else None
        if early is not None:
            return early
        with self._lock:
            try:
                answer = self._answer(request, path)
            except Refused as refused:
                answer = refused.answer
                if refused.fault:
                    self.faults.append(f"{request.method} {path}: {refused.fault}")
            if self.on_write and _changes(f"{request.method} {path}"):
                state = {str(number): self.comments(number) for number in self._pulls}
                told = {
                    "method": request.method,
                    "path": path,
                    "status": answer.status,
                    "comments": state,
                    "faults": list(self.faults),
                }
                self.on_write({"event": "write", **told})
        late = self.after(request.method, path) if self.after else None
        return answer if late is None else late

    def _answer(self, request: Request, path: str) -> Answer:
        graphql = path == ("/api/graphql" if self.enterprise else "/graphql")
        check_headers(request, graphql=graphql)
        who = self._identity(request)
        if graphql and request.method == "POST":
            return self._graphql(request, who)
        if (request.method, path) == ("GET", "/user"):
            if who.app:
                raise Refused(403, "Resource not accessible by integration")
            return Answer(200, {"login": who.login, "id": number_of(who.login), "type": "User"})
        named = re.match(
            rf"/(?:repos/{re.escape(self.repository)}|repositories/{REPOSITORY_ID})(?=/)",
            path,
            re.IGNORECASE,
        )
        rest = path[named.end() :] if named else ""
        for method, pattern, answer in self._ROUTES:
            found = re.fullmatch(pattern, rest)
            if found and method == request.method:
                return answer(self, request, who, rest)
        raise Refused(404, "Not Found", "an unknown path")

    def _identity(self, request: Request) -> Token:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Refused(401, "Requires authentication", "no bearer token")
        if value not in self._tokens:
            raise Refused(401, "Bad credentials")
        return self._tokens[value]

    def _graphql(self, request: Request, who: Token) -> Answer:
        query = document_of(request).get("query")
        if not isinstance(query, str) or not _VIEWER.fullmatch(query):
            self.faults.append(f"POST /graphql: another query than viewer's login: {query!r}")
            return Answer(200, {"errors": [{"message": "Parse error"}]})
        return Answer(200, {"data": {"viewer": {"login": who.login}}})

    def _pull(self, rest: str) -> Pull:
        number = int(rest.split("/")[2])
        if number not in self._pulls:
            raise Refused(404, "Not Found")
        return self._pulls[number]

    def _comment(self, rest: str) -> Written:
        number = int(rest.rsplit("/", 1)[1])
        if number not in self._comments:
            raise Refused(404, "Not Found")
        return self._comments[number]

    def _get_pull(self, request: Request, who: Token, rest: str) -> Answer:
        only(request)
        return Answer(200, pull_json(self._pull(rest)))

    def _list_pulls(self, request: Request, who: Token, rest: str) -> Answer:
        only(request, "state", "head", "base", "sort", "direction", "per_page", "page")
        state, head = request.query.get("state", "open"), request.query.get("head")
        if head is not None and not re.fullmatch(r"[^:]+:.+", head, re.DOTALL):
            raise Refused(422, "Validation Failed", f"head is OWNER:BRANCH, not {head!r}")
        newest_first = sorted(self._pulls.values(), key=lambda pull: -pull.number)
        found = [
            pull
            for pull in newest_first
            if state in ("all", pull.state) and (head is None or pull.is_from(head))
        ]
        return page(request, self.url, rest, [pull_json(pull) for pull in found])

    def _pulls_at(self, request: Request, who: Token, rest: str) -> Answer:
        only(request, "per_page", "page")
        sha = rest.split("/")[2]
        found = [pull_json(pull) for pull in self._pulls.values() if pull.head_sha == sha]
        if not found:
            raise Refused(422, f"No commit found for SHA: {sha}")
        return page(request, self.url, rest, found)

    def _list_comments(self, request: Request, who: Token, rest: str) -> Answer:
        only(request, "since", "per_page", "page")
        return page(request, self.url, rest, self.comments(self._pull(rest).number))

    def _create(self, request: Request, who: Token, rest: str) -> Answer:
        only(request)
        must_write(who)
        pull, body = self._pull(rest), body_of(request)
        if pull.locked:
            raise Refused(403, "Unable to create comment because issue is locked.")
        made = self._comments[self.add_comment(pull.number, who.login, body)]
        return Answer(201, comment_json(made, self.repository, self.url))

    def _update(self, request: Request, who: Token, rest: str) -> Answer:
        only(request)
        must_write(who)
        found = self._comment(rest)
        found.body = body_of(request)
        return Answer(200, comment_json(found, self.repository, self.url))

    def _delete(self, request: Request, who: Token, rest: str) -> Answer:
        only(request)
        must_write(who)
        del self._comments[self._comment(rest).id]
        return Answer(204)

    _ROUTES: ClassVar[tuple[tuple[str, str, Callable[..., Answer]], ...]] = (
        ("GET", r"/pulls/\d+", _get_pull),
        ("GET", r"/pulls", _list_pulls),
        ("GET", r"/commits/([0-9a-f]{40}|[0-9a-f]{64})/pulls", _pulls_at),
        ("GET", r"/issues/\d+/comments", _list_comments),
        ("POST", r"/issues/\d+/comments", _create),
        ("PATCH", r"/issues/comments/\d+", _update),
        ("DELETE", r"/issues/comments/\d+", _delete),
    )


def _changes(line: str) -> bool:
    return not line.startswith("GET ") and not line.endswith("/graphql")


def main(arguments: Sequence[str]) -> None:
    """Serve until the process is told to stop. The first line names `url`, `graphql_url` and the
    tokens."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.github.server", description=main.__doc__
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--repository", default="octo-org/trainer")
    parser.add_argument("--enterprise", action="store_true")
    parser.add_argument(
        "--pull", action="append", default=[], metavar="NUMBER:SHA[:BRANCH[:OWNER/NAME]]"
    )
    parser.add_argument("--token", action="append", default=[], metavar="LOGIN[=VALUE]")
    parser.add_argument("--read-only", action="append", default=[], metavar="LOGIN[=VALUE]")
    chosen = parser.parse_args(arguments)
    github = GitHub(
        chosen.repository,
        chosen.host,
        chosen.port,
        chosen.enterprise,
        on_write=lambda told: print(json.dumps(told), flush=True),
    )
    tokens = []
    for write, given in ((True, chosen.token or [BOT]), (False, chosen.read_only)):
        for login, _, value in (item.partition("=") for item in given):
            tokens.append(
                {"login": login, "token": github.token(login, write, value or None), "write": write}
            )
    for item in chosen.pull:
        number, *rest = item.split(":")
        github.add_pull(int(number), *rest)
    with github:
        print(
            json.dumps(
                {
                    "event": "listening",
                    "url": github.url,
                    "graphql_url": github.graphql_url,
                    "tokens": tokens,
                }
            ),
            flush=True,
        )
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
