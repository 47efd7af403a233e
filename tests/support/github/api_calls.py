"""Every call of the API client with an answer as GitHub gives it, and a client whose clock is a
list. Used by the tests of the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import requests

from repro_gate.github.client import Api
from repro_gate.github.retry import Limits
from repro_gate.github.settings import Secret
from tests.support.github.answers import a_comment, a_pull
from tests.support.github.flaky_server import Reply

TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
REPOSITORY = "octo-org/octo-repo"
SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
START = 1_800_000_000.0  # UTC epoch seconds

PULL = {
    "number": 7,
    "state": "open",
    "draft": True,
    "head": {"ref": "topic", "sha": SHA, "repo": {"full_name": "stranger/octo-repo"}},
    "base": {"ref": "main", "sha": "0" * 40, "repo": {"full_name": REPOSITORY}},
}
COMMENT = {
    "id": 42,
    "body": "Me too",
    "user": {"login": "github-actions[bot]"},
    "html_url": "https://github.com/octo-org/octo-repo/pull/7#issuecomment-42",
    "created_at": "2026-01-02T03:04:05Z",
}
THE_PULL = a_pull(7, SHA, "stranger/octo-repo", REPOSITORY, draft=True)
THE_COMMENT = a_comment(42, "Me too", "github-actions[bot]", COMMENT["html_url"])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sample:
    """One method of the client: how it is called, what it sends, a good answer and what comes of
    it."""

    ask: Callable[[Api], object]
    line: str  # method and path with query
    good: Reply
    value: object
    sent: object = None  # the body, as JSON

    @property
    def write(self) -> bool:
        return "/issues/" in self.line and not self.line.startswith("GET")


_IN = f"/repos/{REPOSITORY}"
CALLS = {
    "viewer": Sample(
        lambda api: api.viewer(),
        "POST /graphql",
        Reply(200, {"data": {"viewer": {"login": "github-actions[bot]"}}}),
        "github-actions[bot]",
        {"query": "query { viewer { login } }"},
    ),
    "pull": Sample(lambda api: api.pull(7), f"GET {_IN}/pulls/7", Reply(200, PULL), THE_PULL),
    "pulls_at": Sample(
        lambda api: api.pulls_at(SHA),
        f"GET {_IN}/commits/{SHA}/pulls?per_page=100",
        Reply(200, [PULL]),
        (THE_PULL,),
    ),
    "open_pulls": Sample(
        lambda api: api.open_pulls("stranger:topic"),
        f"GET {_IN}/pulls?state=open&head=stranger%3Atopic&per_page=100",
        Reply(200, [PULL]),
        (THE_PULL,),
    ),
    "comments": Sample(
        lambda api: list(api.comments(7)),
        f"GET {_IN}/issues/7/comments?per_page=100",
        Reply(200, [COMMENT]),
        [THE_COMMENT],
    ),
    "create_comment": Sample(
        lambda api: api.create_comment(7, "Me too"),
        f"POST {_IN}/issues/7/comments",
        Reply(201, COMMENT),
        THE_COMMENT,
        {"body": "Me too"},
    ),
    "update_comment": Sample(
        lambda api: api.update_comment(42, "Me too"),
        f"PATCH {_IN}/issues/comments/42",
        Reply(200, COMMENT),
        THE_COMMENT,
        {"body": "Me too"},
    ),
    "delete_comment": Sample(
        lambda api: api.delete_comment(42), f"DELETE {_IN}/issues/comments/42", Reply(204), None
    ),
}
NAMES = tuple(CALLS)
PAGED = ("pulls_at", "open_pulls", "comments")
REPEATABLE = tuple(name for name in NAMES if name != "create_comment")
# those whose answer has a body that is read
ANSWERED = tuple(name for name in NAMES if name != "delete_comment")


class Clock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.time = START
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.time += seconds


def client(
    url: str,
    clock: Clock,
    *,
    patience: float = 300.0,
    tries: int = 3,
    read: float = 10.0,
    body: int = 2**20,
) -> Api:
    """The client against a server of the test's own, without the machine's proxies."""
    session = requests.Session()
    session.proxies = {"http": "", "https": ""}
    limits = Limits(connect=5.0, read=read, body=body, tries=tries)
    return Api(
        Secret(TOKEN),
        REPOSITORY,
        api_url=url,
        sleep=clock.sleep,
        now=clock.now,
        session=session,
        patience=patience,
        limits=limits,
    )
