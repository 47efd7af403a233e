"""The part of GitHub's API that the gate needs: the token's login, pull requests, and their
comments. Each method is one endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, field

from repro_gate.github.event import (
    Commit,
    Malformed,
    Number,
    PullRequest,
    Word,
    decode,
)
from repro_gate.github.settings import Secret, Server
from repro_gate.github.transport import ApiError, Call, Transport

PER_PAGE = 100  # GitHub's most
MOST_PAGES = 100  # GitHub itself closes a conversation at 2,500 comments
_VIEWER = "query { viewer { login } }"
# refusals after which the token's login is unknown
_IDENTITY_UNKNOWN = (
    "github/api",
    "github/closed",
    "github/permission",
    "github/redirect",
)
_T = TypeVar("_T")


class Account(msgspec.Struct, frozen=True):
    """A person or an app; an app's login ends in `[bot]`."""

    login: Word


class Comment(msgspec.Struct, frozen=True):
    """One comment of a pull request's conversation."""

    id: Number
    url: Annotated[str, Meta(max_length=2048)] = field(name="html_url")
    # GitHub's own limit is 65,536
    text: Annotated[str, Meta(max_length=2**18)] | None = field(
        name="body", default=None
    )
    user: Account | None = None

    @property
    def body(self) -> str:
        """Return its text; empty if there is none."""
        return self.text or ""

    @property
    def author(self) -> str:
        """Return the author's login; empty if the account is gone."""
        return self.user.login if self.user else ""


class _Viewer(msgspec.Struct, frozen=True):
    data: dict[str, Account | None] | None = None


class Api:
    """One repository, as one token may see it."""

    def __init__(self, token: Secret, server: Server) -> None:
        self._graphql = server.graphql_url
        self._repository = f"{server.api_url}/repos/{server.repository}"
        self._transport = Transport(token)

    def viewer(self) -> str | None:
        """Return the login of the token, by which our comments are recognized; None if GitHub does
        not tell it. An app's login ends in `[bot]`, as in REST. Raises ApiError for a wrong token,
        a rate limit or a fault at GitHub, after which another try may know it."""
        call = Call("POST", self._graphql, body={"query": _VIEWER})
        try:
            data = self._ask(call, _Viewer).data or {}
        except ApiError as error:
            if error.reason_id not in _IDENTITY_UNKNOWN:
                raise
            return None
        account = data.get("viewer")
        return account.login if account else None

    def pull(self, number: int) -> PullRequest | None:
        """Return a pull request by its number; None if there is none that this token may see."""
        call = Call("GET", f"{self._repository}/pulls/{number:d}")
        try:
            return self._ask(call, PullRequest)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def pulls_at(self, sha: Commit) -> list[PullRequest]:
        """Return the pull requests of a commit, in any state; none if GitHub has no such commit."""
        url = f"{self._repository}/commits/{sha}/pulls"
        try:
            return list(self._pages(url, PullRequest))
        except ApiError as error:
            if error.status not in {404, 422}:
                raise
            return []

    def open_pulls(self, head: str) -> list[PullRequest]:
        """Return the open pull requests from the branch `head`, `OWNER:BRANCH`. GitHub ignores a
        value of another form and would return every pull request."""
        url = f"{self._repository}/pulls"
        return list(self._pages(url, PullRequest, state="open", head=head))

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of a pull request's conversation, oldest first, page by page."""
        return self._pages(f"{self._repository}/issues/{number:d}/comments", Comment)

    def create_comment(self, number: int, body: str) -> Comment:
        """Write a new comment. Raises Uncertain if it may or may not have been made: look for it
        before trying again."""
        url = f"{self._repository}/issues/{number:d}/comments"
        return self._ask(Call("POST", url, body={"body": body}), Comment)

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace a comment's text. Raises ApiError with status 404 if the comment no longer
        exists."""
        url = f"{self._repository}/issues/comments/{comment_id:d}"
        return self._ask(Call("PATCH", url, body={"body": body}), Comment)

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment. Raises ApiError with status 404 if the comment no longer exists."""
        url = f"{self._repository}/issues/comments/{comment_id:d}"
        self._transport.send(Call("DELETE", url))

    def _ask(self, call: Call, kind: type[_T]) -> _T:
        return _decoded(call, self._transport.send(call).body, kind)

    def _pages(self, url: str, kind: type[_T], **query: str) -> Iterator[_T]:
        """Yield every item of every page. Pages are requested by number, so that the token follows
        no link. Raises ApiError for an endless list."""
        for number in range(1, MOST_PAGES + 1):
            call = Call("GET", url, {**query, "per_page": PER_PAGE, "page": number})
            answer = self._transport.send(call)
            yield from _decoded(call, answer.body, list[kind])  # type: ignore[valid-type]
            if not answer.more:
                return
        raise ApiError(
            f"GET {url}: more than {MOST_PAGES} pages",
            remedy="close this pull request and open another: its list has no end",
        )


def _decoded(call: Call, body: bytes, kind: type[_T]) -> _T:
    """Return the document in `body`. Raises ApiError if it is no answer of GitHub's API."""
    try:
        return decode(body, kind)
    except Malformed as error:
        reason = str(error)
    raise call.error(
        f"{call}: the answer is not of the expected form: {reason}",
        remedy="see that GITHUB_API_URL is the API of a GitHub server and that no proxy answers in "
        "its place",
        reason_id="github/shape",
    )
