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
from tests.support.github.server import BOT, GitHub

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
    assert answer.status_code == 201
    assert started["tokens"] == [{"login": BOT, "token": "ghs_x", "write": True}]
    assert told["status"] == 201
    assert told["comments"]["7"][0]["body"] == "told"
    assert told["faults"] == []
