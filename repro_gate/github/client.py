"""GitHub's API, as far as the gate needs it: who the token is, pull requests, and their comments.
Each method is one endpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, TypeVar

import msgspec
import requests
from msgspec import Meta, field

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.api_errors import NOT_FOUND, UNAUTHORIZED, ApiError, Uncertain
from repro_gate.github.event import (
    Malformed,
    Number,
    PullRequest,
    Word,
    decode,
    is_commit,
    is_repository,
)
from repro_gate.github.retry import Call, Limits
from repro_gate.github.settings import Secret, graphql_beside
from repro_gate.github.transport import Transport, same_origin, server

PER_PAGE = "100"  # GitHub's most
MOST_PAGES = 100  # GitHub itself closes a conversation at 2,500 comments
_VIEWER = "query { viewer { login } }"
_UNPROCESSABLE = 422
_T = TypeVar("_T")


class Account(msgspec.Struct, frozen=True):
    """A person or an app; an app's login ends in `[bot]`."""

    login: Word


class Comment(msgspec.Struct, frozen=True):
    """One comment of a pull request's conversation."""

    id: Number
    url: Annotated[str, Meta(max_length=2048)] = field(name="html_url")
    # GitHub's own limit is 65,536
    text: Annotated[str, Meta(max_length=2**18)] | None = field(name="body", default=None)
    user: Account | None = None

    @property
    def body(self) -> str:
        """Its text; empty where there is none."""
        return self.text or ""

    @property
    def author(self) -> str:
        """The author's login; empty where the account is gone."""
        return "" if self.user is None else self.user.login


class _Data(msgspec.Struct, frozen=True):
    viewer: Account | None = None


class _Viewer(msgspec.Struct, frozen=True):
    data: _Data | None = None


class Api:
    """One repository, seen with one token. Raises UsageError for a URL, a repository or a token
    that can be none.

    `sleep` and `now` (UTC epoch seconds) are the clock. All waiting together stays under `patience`
    seconds; then an ApiError says when GitHub would go on.
    """

    def __init__(
        self,
        token: Secret,
        repository: str,
        *,
        api_url: str = "https://api.github.com",
        graphql_url: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
        session: requests.Session | None = None,
        patience: float = 300.0,
        limits: Limits | None = None,
    ) -> None:
        self._root = server(api_url, "GITHUB_API_URL")
        self._graphql = server(graphql_url or graphql_beside(self._root), "GITHUB_GRAPHQL_URL")
        if not is_repository(repository):
            raise UsageError(
                f"repository: {for_terminal(repository, 100)!r} is not owner/name",
                remedy="set GITHUB_REPOSITORY or --repository",
            )
        if not token or not re.fullmatch(r"[!-~]+", token.reveal()):
            raise UsageError(
                "token: empty, or holds what no token holds (blanks, line ends)",
                remedy="pass `token: ${{ github.token }}`",
            )
        self._repository = repository
        self._transport = Transport(
            token,
            sleep=sleep,
            now=now,
            session=session,
            patience=patience,
            limits=limits if limits is not None else Limits(),
        )

    def viewer(self) -> str | None:
        """The login that comments made with this token carry, `[bot]` included; None where GitHub
        does not say.

        GraphQL's `viewer` knows installations too (`github-actions[bot]`, spelled as REST spells
        it); `GET /user` knows people only.
        """
        call = Call(
            method="POST", url=self._graphql, path="/graphql", body={"query": _VIEWER}, graphql=True
        )
        answer = self._unless_refused(call, _Viewer)
        if answer is not None and answer.data is not None and answer.data.viewer is not None:
            return answer.data.viewer.login
        account = self._unless_refused(self._call("GET", "/user"), Account)
        return None if account is None else account.login

    def pull(self, number: int) -> PullRequest | None:
        """A pull request by its number; None where there is none, or none that this token may
        see."""
        try:
            return self._ask(
                self._call("GET", f"/repos/{self._repository}/pulls/{number:d}"), PullRequest
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    def pulls_at(self, sha: str) -> tuple[PullRequest, ...]:
        """The pull requests that GitHub ties to a commit, whatever their state; none where it has
        no such commit."""
        if not is_commit(sha):  # `..` would name another endpoint
            return ()
        try:
            return tuple(
                self._pages(f"/repos/{self._repository}/commits/{sha}/pulls", {}, PullRequest)
            )
        except ApiError as error:
            if error.status not in {NOT_FOUND, _UNPROCESSABLE}:
                raise
            return ()

    def open_pulls(self, head: str) -> tuple[PullRequest, ...]:
        """The open pull requests from the branch `head`, `OWNER:BRANCH`. Raises UsageError for
        another form."""
        owner, _, branch = head.partition(":")
        if not owner or not branch:  # GitHub would leave the filter out and name every pull request
            raise UsageError(f"head: {for_terminal(head, 100)!r} is not OWNER:BRANCH")
        found = self._pages(
            f"/repos/{self._repository}/pulls", {"state": "open", "head": head}, PullRequest
        )
        return tuple(pull for pull in found if pull.head.ref == branch and _owned(pull, owner))

    def comments(self, number: int) -> Iterator[Comment]:
        """The comments of a pull request's conversation, oldest first, page by page."""
        return self._pages(f"/repos/{self._repository}/issues/{number:d}/comments", {}, Comment)

    def create_comment(self, number: int, body: str) -> Comment:
        """Write a new comment. Raises Uncertain where it may or may not have been made: look for it
        before trying again."""
        call = self._call(
            "POST",
            f"/repos/{self._repository}/issues/{number:d}/comments",
            body={"body": body},
            once=True,
        )
        return self._ask(call, Comment)

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Give a comment another text. ApiError with status 404: it is not there any more."""
        call = self._call(
            "PATCH",
            f"/repos/{self._repository}/issues/comments/{comment_id:d}",
            body={"body": body},
        )
        return self._ask(call, Comment)

    def delete_comment(self, comment_id: int) -> None:
        """Take a comment away. One that is not there is away."""
        try:
            self._transport.send(
                self._call("DELETE", f"/repos/{self._repository}/issues/comments/{comment_id:d}")
            )
        except ApiError as error:
            if error.status != NOT_FOUND or error.read_only:
                raise

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        once: bool = False,
    ) -> Call:
        url = self._root + path
        return Call(
            method=method,
            url=url,
            path=path,
            params=params or {},
            body=body,
            once=once,
            write=method != "GET",
        )

    def _ask(self, call: Call, kind: type[_T]) -> _T:
        return _decoded(call, self._transport.send(call).body, kind)

    def _unless_refused(self, call: Call, kind: type[_T]) -> _T | None:
        """The answer; None where this token may not ask or the server does not know the question.

        A wrong token, a rate limit and trouble at GitHub's are raised: not to know for now is not
        to know at all.
        """
        try:
            return self._ask(call, kind)
        except ApiError as error:
            if (
                error.status is None
                or error.status == UNAUTHORIZED
                or error.status >= 500
                or error.reason_id == "github/rate-limit"
            ):
                raise
            return None

    def _pages(self, path: str, params: Mapping[str, str], kind: type[_T]) -> Iterator[_T]:
        """Every item of every page. Raises ApiError for a next page on another origin, and for a
        list without end."""
        call = self._call("GET", path, params={**params, "per_page": PER_PAGE})
        for _ in range(MOST_PAGES):
            answer = self._transport.send(call)
            yield from _decoded(call, answer.body, list[kind])  # type: ignore[valid-type]
            if answer.next_url is None:
                return
            call = Call(
                method="GET", url=same_origin(answer.url, answer.next_url, str(call)), path=path
            )
        raise ApiError(
            f"{call}: more than {MOST_PAGES} pages",
            remedy="close this pull request and open another: its list has no end",
        )


def _owned(pull: PullRequest, owner: str) -> bool:
    return (
        pull.head_repository is None
        or pull.head_repository.partition("/")[0].lower() == owner.lower()
    )


def _decoded(call: Call, body: bytes, kind: type[_T]) -> _T:
    """Raises ApiError for an answer that is none of GitHub's. A write that must not be repeated was
    answered as done: it may have been."""
    try:
        return decode(body, kind)
    except Malformed as error:
        reason = str(error)
    raise (Uncertain if call.once else ApiError)(
        f"{call}: the answer is not of the expected form: {reason}",
        remedy="see that GITHUB_API_URL is the API of a GitHub server and that no proxy answers in "
        "its place",
        reason_id="github/shape",
    )
