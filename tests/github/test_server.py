"""The GitHub of our own is as strict as the tests that rest on it believe."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.support.github.conversation import HEAD, PULL
from tests.support.github.server import BOT, CUT, GitHub

COMMENTS = "/repos/octo-org/trainer/issues/7/comments"


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        server.add_pull(PULL, HEAD, head_repository="stranger/trainer")
        yield server


def ask(
    github: GitHub, method: str, path: str, *, token: str | None = None, **more: Any
) -> requests.Response:
    headers = {
        "Authorization": f"Bearer {token or github.token()}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        **more.pop("headers", {}),
    }
    return requests.request(
        method,
        path if path.startswith("http") else github.url + path,
        headers=headers,
        timeout=10,
        **more,
    )


def test_a_careful_client_is_served_without_fault(github: GitHub) -> None:
    made = ask(github, "POST", COMMENTS, json={"body": "x" * 65_536}).json()
    assert made["user"]["login"] == BOT
    assert (
        ask(
            github,
            "PATCH",
            f"/repos/octo-org/trainer/issues/comments/{made['id']}",
            json={"body": "y"},
        ).json()["body"]
        == "y"
    )
    assert (
        ask(github, "GET", "/repos/Octo-Org/Trainer/pulls/7").json()["head"]["repo"]["full_name"]
        == "stranger/trainer"
    )
    assert [
        item["number"]
        for item in ask(
            github, "GET", "/repos/octo-org/trainer/pulls?state=open&head=stranger:topic"
        ).json()
    ] == [PULL]
    assert (
        ask(github, "GET", f"/repos/octo-org/trainer/commits/{HEAD}/pulls").json()[0]["number"]
        == PULL
    )
    assert ask(github, "POST", "/graphql", json={"query": "query { viewer { login } }"}).json() == {
        "data": {"viewer": {"login": BOT}}
    }
    assert ask(github, "GET", "/user", token=github.token("octocat")).json()["login"] == "octocat"
    assert (
        ask(github, "DELETE", f"/repos/octo-org/trainer/issues/comments/{made['id']}").status_code
        == 204
    )
    assert github.comments(PULL) == [] and github.faults == []


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/repos/octo-org/trainer/issues/7", {}, 404),
        ("GET", "/repos/other/trainer/pulls/7", {}, 404),
        ("GET", COMMENTS, {"headers": {"Accept": "application/json"}}, 415),
        ("GET", COMMENTS, {"headers": {"X-GitHub-Api-Version": None}}, 400),
        ("GET", COMMENTS, {"headers": {"Authorization": None}}, 401),
        ("GET", COMMENTS, {"headers": {"User-Agent": ""}}, 403),
        ("GET", COMMENTS + "?per_page=101", {}, 400),
        ("GET", COMMENTS + "?pages=1", {}, 400),
        ("GET", "/repos/octo-org/trainer/pulls?head=topic", {}, 422),
        ("POST", COMMENTS, {"data": "{", "headers": {"Content-Type": "application/json"}}, 400),
        ("POST", COMMENTS, {"data": '{"body": "x"}'}, 415),
        ("POST", COMMENTS, {"json": {"body": 1}}, 422),
        ("POST", COMMENTS, {"json": {"text": "x"}}, 422),
    ],
)
def test_a_careless_request_is_refused_and_noted(
    github: GitHub, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    assert ask(github, method, path, **more).status_code == status
    assert len(github.faults) == 1 and github.comments(PULL) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        (
            "POST",
            COMMENTS,
            {"body": "x" * 65_537},
            422,
            "Body is too long (maximum is 65536 characters)",
        ),
        ("POST", COMMENTS, {"body": " "}, 422, "blank"),
        ("POST", "/repos/octo-org/trainer/issues/8/comments", {"body": "x"}, 404, "Not Found"),
        ("PATCH", "/repos/octo-org/trainer/issues/comments/1", {"body": "x"}, 404, "Not Found"),
        ("DELETE", "/repos/octo-org/trainer/issues/comments/1", None, 404, "Not Found"),
        ("GET", f"/repos/octo-org/trainer/commits/{'d' * 40}/pulls", None, 422, "No commit found"),
        ("GET", "/user", None, 403, "Resource not accessible by integration"),
    ],
)
def test_what_github_refuses_is_refused_in_its_words(
    github: GitHub, method: str, path: str, body: object, status: int, words: str
) -> None:  # fmt: skip
    answer = ask(github, method, path, json=body)
    assert answer.status_code == status and words in answer.text and github.faults == []


def test_a_token_that_may_only_read_cannot_write(github: GitHub) -> None:
    answer = ask(github, "POST", COMMENTS, token=github.token(write=False), json={"body": "x"})
    assert (
        answer.status_code == 403
        and answer.json()["message"] == "Resource not accessible by integration"
    )
    assert "pull_requests=write" in answer.headers["x-accepted-github-permissions"]
    assert ask(github, "GET", COMMENTS, token="ghs_wrong").json()["message"] == "Bad credentials"


def test_a_locked_conversation_takes_no_comment(github: GitHub) -> None:
    github.change_pull(PULL, locked=True)
    assert "issue is locked" in ask(github, "POST", COMMENTS, json={"body": "x"}).text


def test_pages_lead_to_each_other_by_links_that_name_the_repository_by_number(
    github: GitHub,
) -> None:
    ids = [github.add_comment(PULL, "octocat", f"{count}") for count in range(70)]
    first = ask(github, "GET", COMMENTS)
    second = ask(github, "GET", first.links["next"]["url"])
    last = ask(github, "GET", second.links["next"]["url"])
    assert (
        "/repositories/" in second.url
        and "next" not in last.links
        and first.links["last"]["url"] == last.url
    )
    assert [item["id"] for page in (first, second, last) for item in page.json()] == ids
    assert len(first.json()) == 30 and github.faults == []


def test_hooks_come_before_and_after_the_deed(github: GitHub) -> None:
    seen: list[int] = []
    github.before = lambda method, path: seen.append(len(github.comments(PULL)))
    github.after = lambda method, path: CUT
    with pytest.raises(requests.ConnectionError):
        ask(github, "POST", COMMENTS, json={"body": "x"})
    assert seen == [0] and github.bodies(PULL) == ["x"]


def test_an_enterprise_server_has_its_own_paths() -> None:
    with GitHub(enterprise=True) as server:
        server.add_pull(PULL, HEAD)
        assert server.url.endswith("/api/v3") and server.graphql_url.endswith("/api/graphql")
        assert ask(server, "GET", COMMENTS).json() == []
        assert (
            ask(server, "POST", server.graphql_url, json={"query": "{viewer{login}}"}).json()[
                "data"
            ]["viewer"]["login"]
            == BOT
        )
        assert server.requests == [f"GET {COMMENTS}", "POST /api/graphql"] and server.faults == []


def test_the_script_tells_of_each_write() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.support.github.server",
        "--pull",
        f"7:{HEAD}:topic:stranger/trainer",
        "--token",
        f"{BOT}=ghs_x",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        answer = requests.post(
            started["url"] + COMMENTS,
            json={"body": "told"},
            headers={
                "Authorization": "Bearer ghs_x",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
            timeout=10,
        )
        told = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
    assert answer.status_code == 201 and started["tokens"] == [
        {"login": BOT, "token": "ghs_x", "write": True}
    ]
    assert (
        told["status"] == 201
        and told["comments"]["7"][0]["body"] == "told"
        and told["faults"] == []
    )
