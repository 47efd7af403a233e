"""Every request of the API client is one that GitHub's own OpenAPI description allows, and its
answers are read as GitHub shows them. Prism lets a query or a field pass that it does not know: the
GitHub of our own (`tests.support.github.server`) does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests

from repro_gate.github import client
from repro_gate.github.client import Account, Api, Comment
from repro_gate.github.event import PullRequest
from repro_gate.github.settings import Secret, Server
from repro_gate.github.transport import ApiError

pytestmark = pytest.mark.api

SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
PAGE = "https://github.com/octocat/Hello-World/issues/1347#issuecomment-1"
COMMENT = Comment(1, PAGE, "Me too", Account("octocat"))
# What GitHub's example of a pull request holds, in the description of every server.
PULL = (1347, "open", "new-topic", SHA, "octocat/Hello-World", "octocat/Hello-World")


def read(*pulls: PullRequest | None) -> list[tuple[object, ...]]:
    """What the client read of each, as PULL is written."""
    found: list[tuple[object, ...]] = []
    for pull in filter(None, pulls):
        head, base = pull.head, pull.base
        ends = (head.ref, head.sha, pull.head_repository, base.repo.full_name)
        found.append((pull.number, pull.state, *ends))
    return found


TEXT = "## Repro Gate\n\n<!-- x -->\n"
CALLS: dict[str, tuple[Callable[[Api], object], object]] = {
    "pull": (lambda api: read(api.pull(1347)), [PULL]),
    "pulls_at": (lambda api: read(*api.pulls_at(SHA)), [PULL]),
    "open_pulls": (lambda api: read(*api.open_pulls("octocat:topic")), [PULL]),
    "comments": (lambda api: list(api.comments(1347)), [COMMENT]),
    "create_comment": (lambda api: api.create_comment(1347, TEXT), COMMENT),
    "update_comment": (lambda api: api.update_comment(1, "Me too"), COMMENT),
    "delete_comment": (lambda api: api.delete_comment(1), None),
}


class Recorded(requests.Session):
    """A session that keeps what was sent and what Prism found wrong with it. `prefer` chooses
    Prism's answer."""

    def __init__(self, prefer: str = "", *, pages: bool = False) -> None:
        super().__init__()
        self.proxies = {"http": "", "https": ""}
        self.sent: list[requests.PreparedRequest] = []
        self.statuses: list[int] = []
        self.wrong: list[object] = []
        self._prefer, self._pages = prefer, pages

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        # The description knows `application/json` alone; GitHub's text on media types recommends
        # `application/vnd.github+json`.
        assert request.headers["Accept"] in {"application/vnd.github+json", "*/*"}
        request.headers["Accept"] = "application/json"
        if self._prefer:
            request.headers["Prefer"] = self._prefer
        response = super().send(request, **kwargs)
        self.sent.append(request)
        self.statuses.append(response.status_code)
        found = json.loads(response.headers.get("sl-violations", "[]"))
        self.wrong += [item for item in found if item["location"][0] == "request"]
        if not self._pages:
            response.headers.pop("Link", None)  # the examples name api.github.com
        return response


def _api(url: str, session: requests.Session) -> Api:
    server = Server(
        repository="octocat/Hello-World",
        server_url="https://github.com",
        api_url=url,
        graphql_url=f"{url}/graphql",
    )
    api = Api(Secret("ghs_example"), server)
    api._transport._session = session
    return api


@pytest.mark.parametrize("name", CALLS)
def test_prism_accepts_every_request_and_its_answer_is_read(name: str, prism: str) -> None:
    ask, value = CALLS[name]
    session = Recorded()
    assert ask(_api(prism, session)) == value
    assert session.statuses[-1] in {200, 201, 204} and not session.wrong
    assert len(session.sent) == 1


def test_prism_refuses_a_wrong_request_so_that_these_tests_can_fail(prism: str) -> None:
    session = Recorded()
    with pytest.raises(ApiError, match="422 to POST"):
        _api(prism, session).create_comment(1347, 7)  # type: ignore[arg-type]
    assert session.wrong
    for method, path, body in (
        ("POST", "/repos/o/r/issues/1/comments", {"bod": "x"}),
        ("PATCH", "/repos/o/r/issues/comments/1", {}),
        ("GET", "/repos/o/r/pulls?state=opened", None),
        ("GET", "/repos/o/r/issues/1/comments?per_page=many", None),
        ("DELETE", "/repos/o/r/issues/comments/x", None),
    ):
        assert session.request(method, prism + path, json=body, timeout=60).status_code == 422
    assert session.get(f"{prism}/repos/o/r/issue/1/comments", timeout=60).status_code == 404


def test_a_403_is_told_with_the_permission_line(prism: str) -> None:
    session = Recorded("code=403")
    with pytest.raises(ApiError) as caught:
        CALLS["create_comment"][0](_api(prism, session))
    assert "permissions: {pull-requests: write}" in caught.value.remedy
    assert caught.value.status == 403 and session.statuses == [403]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("create_comment", 410),
        ("create_comment", 422),
        ("update_comment", 422),
        ("comments", 404),
        ("open_pulls", 422),
    ],
)
def test_the_other_documented_refusals_are_understood(name: str, code: int, prism: str) -> None:
    assert _api(prism, Recorded("code=404")).pull(1347) is None
    session = Recorded(f"code={code}")
    with pytest.raises(ApiError) as caught:
        CALLS[name][0](_api(prism, session))
    assert (caught.value.status, session.statuses) == (code, [code])


def test_a_next_page_is_asked_for_here(prism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_PAGES", 2)
    session = Recorded(pages=True)
    with pytest.raises(ApiError, match="more than 2 pages"):
        CALLS["comments"][0](_api(prism, session))
    assert [str(request.url).partition("/repos/")[0] for request in session.sent] == [prism] * 2
    assert not session.wrong
