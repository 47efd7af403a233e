"""A pull request at a GitHub of our own, a client for it, and a run's marker. Used by the tests of
comment, races and workflow runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import Marker, marker_line
from repro_gate.github.settings import Secret, Server
from tests.support.github.server import BOT, GitHub

PULL = 7
OLD, HEAD, NEXT = "a" * 40, "b" * 40, "c" * 40
KEY = "0" * 32


def no_sleep(seconds: float) -> None:
    """A clock that no test waits for."""


def client(github: GitHub, login: str = BOT, value: str | None = None, url: str = "") -> Api:
    """The real client with a token of `login`."""
    server = Server(
        repository=github.repository,
        server_url="https://github.com",
        api_url=url or github.url,
        graphql_url=url or github.graphql_url,
    )
    return Api(Secret(github.token(login, value=value)), server)


@contextmanager
def conversation() -> Iterator[GitHub]:
    """A server with one open pull request. What a careful client would not have done fails the
    test."""
    with GitHub() as github:
        github.add_pull(PULL, HEAD)
        yield github
    assert github.faults == []


def marker_of(
    run: int = 10,
    attempt: int = 1,
    head: str = HEAD,
    state: str = "aa",
    key: str = KEY,
    verdict: str = "fail",
) -> Marker:
    return Marker(key, head, run, attempt, state, verdict)


def text_of(marker: Marker, said: str = "") -> str:
    """The comment that `say` makes for this marker."""
    return f"{marker_line(marker)}\n{said or f'told by run {marker.run_id}'}"


def say(
    github: GitHub,
    marker: Marker,
    said: str = "",
    *,
    login: str = BOT,
    body: Callable[[int, Marker | None], str] | None = None,
) -> Posted:
    def told(room: int, _: Marker | None) -> str:
        return text_of(marker, said).partition("\n")[2][:room]

    api = client(github, login)
    return post(api, PULL, marker, body or told, when="always", news=False, sleep=no_sleep)
