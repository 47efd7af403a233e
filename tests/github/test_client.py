"""What the API client sends and what it makes of GitHub's answers: every call, paging, redirects,
who the token is, wrong shapes."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate import __version__
from repro_gate.errors import UsageError
from repro_gate.github.api_errors import ApiError, Uncertain
from repro_gate.github.client import MOST_PAGES, Api
from repro_gate.github.settings import Secret
from tests.support.github.api_calls import (
    ANSWERED,
    CALLS,
    COMMENT,
    NAMES,
    PAGED,
    PULL,
    REPOSITORY,
    SHA,
    THE_PULL,
    TOKEN,
    Clock,
    client,
)
from tests.support.github.flaky_server import FlakyServer, Reply, flaky_server


@pytest.fixture
def server() -> Iterator[FlakyServer]:
    with flaky_server() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("name", NAMES)
def test_each_call_sends_what_github_documents_and_reads_the_answer(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    sample = CALLS[name]
    server.will(sample.good)
    assert sample.ask(client(server.url, clock)) == sample.value
    (asked,) = server.asked
    assert asked.line == sample.line
    assert (json.loads(asked.body) if asked.body else None) == sample.sent
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["accept"] == "application/vnd.github+json"
    assert asked.headers["x-github-api-version"] == "2022-11-28"
    assert asked.headers["user-agent"] == f"repro-gate/{__version__}"
    assert not clock.slept


@pytest.mark.parametrize("name", PAGED)
def test_lists_are_read_to_their_last_page(name: str, server: FlakyServer, clock: Clock) -> None:
    sample = CALLS[name]
    for page in (2, 3, 4):
        server.will(
            Reply(
                200,
                sample.good.document,
                headers={"Link": f'<{server.url}/next?page={page}>; rel="next", <x>; rel="last"'},
            )
        )
    server.will(sample.good)
    assert list(sample.ask(client(server.url, clock))) == 4 * list(sample.value)  # type: ignore[call-overload]
    assert [asked.line for asked in server.asked] == [
        sample.line,
        *(f"GET /next?page={page}" for page in (2, 3, 4)),
    ]


@pytest.mark.parametrize("name", PAGED)
def test_a_next_page_on_another_origin_is_not_asked_for(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    with flaky_server() as elsewhere:
        server.will(
            Reply(
                200,
                CALLS[name].good.document,
                headers={"Link": f'<{elsewhere.url}/page>; rel="next"'},
            )
        )
        with pytest.raises(ApiError, match="another place"):
            CALLS[name].ask(client(server.url, clock))
        assert not elsewhere.asked


def test_a_list_without_end_is_given_up(server: FlakyServer, clock: Clock) -> None:
    server.will(
        *(
            Reply(200, [], headers={"Link": f'<{server.url}/again>; rel="next"'})
            for _ in range(MOST_PAGES)
        )
    )
    with pytest.raises(ApiError, match=f"more than {MOST_PAGES} pages"):
        CALLS["comments"].ask(client(server.url, clock))


def test_pages_are_asked_for_only_as_far_as_they_are_read(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(200, [COMMENT], headers={"Link": f'<{server.url}/more>; rel="next"'}))
    assert next(client(server.url, clock).comments(7)).id == 42
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_on_the_same_origin_is_followed_with_method_and_body(
    name: str, status: int, server: FlakyServer, clock: Clock
) -> None:
    sample = CALLS[name]
    server.will(
        Reply(status, {}, headers={"Location": "/repositories/9/moved?page=1"}), sample.good
    )
    assert sample.ask(client(server.url, clock)) == sample.value
    first, second = server.asked
    assert (second.method, second.path, second.body) == (
        first.method,
        "/repositories/9/moved?page=1",
        first.body,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_redirect_to_another_origin_never_sees_the_token(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    with flaky_server() as elsewhere:
        server.will(Reply(301, {}, headers={"Location": f"{elsewhere.url}/stolen"}))
        with pytest.raises(ApiError, match="another place") as caught:
            CALLS[name].ask(client(server.url, clock))
        assert not elsewhere.asked
        assert not isinstance(caught.value, Uncertain)


@pytest.mark.parametrize(
    "target",
    [
        "https://127.0.0.1:{port}/x",
        "http://user:pass@127.0.0.1:{port}/x",
        "http://127.0.0.1:{port}.example.com/x",
        "//example.com/x",
    ],
)
def test_what_only_looks_like_the_same_origin_is_refused(
    target: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(302, {}, headers={"Location": target.format(port=server.port)}))
    with pytest.raises(ApiError, match="another place"):
        client(server.url, clock).pull(7)


@pytest.mark.parametrize("name", NAMES)
def test_a_redirect_in_a_circle_ends(name: str, server: FlakyServer, clock: Clock) -> None:
    server.will(*(Reply(302, {}, headers={"Location": "/round"}) for _ in range(4)))
    with pytest.raises(ApiError, match="redirected more than 3 times"):
        CALLS[name].ask(client(server.url, clock))


def _without(document: dict[str, object], *path: str) -> dict[str, object]:
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copy  # type: ignore[no-any-return]


WRONG: dict[str, list[object]] = {
    "viewer": [
        {"data": {"viewer": {}}},
        {"data": {"viewer": {"login": 7}}},
        {"data": {"viewer": "me"}},
    ],
    "pull": [
        [],
        None,
        "x",
        {},
        PULL | {"number": "7"},
        PULL | {"number": True},
        PULL | {"head": None},
        _without(PULL, "base", "repo"),
    ],
    "comments": [
        {},
        None,
        [None],
        [7],
        [_without(COMMENT, "id")],
        [COMMENT | {"user": "me"}],
        [COMMENT | {"html_url": None}],
    ],
    "create_comment": [[], None, {}, COMMENT | {"id": 4.5}],
    "update_comment": [[], None, {}, COMMENT | {"body": 7}],
}
WRONG["pulls_at"] = WRONG["open_pulls"] = [
    {},
    None,
    [{}],
    [_without(PULL, "head", "sha")],
    [PULL | {"state": 1}],
]


@pytest.mark.parametrize(
    ("name", "document"),
    [(name, document) for name, documents in WRONG.items() for document in documents],
)
def test_an_answer_of_another_shape_is_an_api_error(
    name: str, document: object, server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(200, document))
    with pytest.raises(ApiError, match="not of the expected form") as caught:
        CALLS[name].ask(client(server.url, clock))
    assert isinstance(caught.value, Uncertain) == (name == "create_comment")


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize(
    "raw",
    [b"<html>login</html>", b"", b"\xff\xfe", b"[" * 200_000],
    ids=["html", "empty", "bytes", "deep"],
)
def test_an_answer_that_is_not_json_is_an_api_error(
    name: str, raw: bytes, server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(200, raw=raw))
    with pytest.raises(ApiError, match=r"not JSON|not of the expected form") as caught:
        CALLS[name].ask(client(server.url, clock))
    assert isinstance(caught.value, Uncertain) == (name == "create_comment")
    assert "GITHUB_API_URL" in caught.value.remedy


@pytest.mark.parametrize("name", ANSWERED)
def test_an_answer_over_the_size_limit_is_not_read_to_its_end(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(200, raw=b" " * 200_000 + CALLS[name].good.body))
    with pytest.raises(ApiError, match="larger than 100,000 bytes") as caught:
        CALLS[name].ask(client(server.url, clock, body=100_000))
    assert isinstance(caught.value, Uncertain) == (name == "create_comment")
    assert len(server.asked) == 1


def test_an_installation_without_graphql_and_a_user_says_nothing(
    server: FlakyServer, clock: Clock
) -> None:
    refusal = Reply(403, {"message": "Resource not accessible by integration"})
    server.will(refusal, refusal)
    assert client(server.url, clock).viewer() is None
    assert [asked.line for asked in server.asked] == ["POST /graphql", "GET /user"]


@pytest.mark.parametrize(
    "first", [Reply(404, {}), Reply(200, {"errors": [{"type": "FORBIDDEN", "message": "no"}]})]
)
def test_a_person_is_found_without_graphql(first: Reply, server: FlakyServer, clock: Clock) -> None:
    server.will(first, Reply(200, {"login": "octocat"}))
    assert client(server.url, clock).viewer() == "octocat"


def test_a_wrong_token_is_said_and_not_taken_for_nobody(server: FlakyServer, clock: Clock) -> None:
    server.will(Reply(401, {"message": "Bad credentials"}))
    with pytest.raises(ApiError, match="401 to POST /graphql: Bad credentials") as caught:
        client(server.url, clock).viewer()
    assert "wrong or has expired" in caught.value.remedy


def test_no_such_pull_request_is_none_and_no_such_commit_has_none(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(
        Reply(404, {"message": "Not Found"}),
        Reply(404, {}),
        Reply(422, {"message": "No commit found for SHA"}),
    )
    api = client(server.url, clock)
    assert api.pull(7) is None
    assert api.pulls_at(SHA) == api.pulls_at(SHA) == ()


@pytest.mark.parametrize("sha", ["..", "", "main", SHA[:7], f"{SHA}/../..", SHA + "\n"])
def test_what_is_no_commit_is_never_put_into_a_path(
    sha: str, server: FlakyServer, clock: Clock
) -> None:
    assert client(server.url, clock).pulls_at(sha) == ()
    assert not server.asked


def test_a_deleted_fork_and_a_deleted_account_are_read(server: FlakyServer, clock: Clock) -> None:
    server.will(
        Reply(200, PULL | {"head": {"ref": "topic", "sha": SHA, "repo": None}}),
        Reply(200, [COMMENT | {"user": None}]),
    )
    api = client(server.url, clock)
    pull = api.pull(7)
    assert pull is not None and pull.head_repository is None and pull.fork
    assert [comment.author for comment in api.comments(7)] == [""]


def test_a_branch_of_another_name_or_owner_is_not_the_one_asked_for(
    server: FlakyServer, clock: Clock
) -> None:
    other = PULL | {"head": {"ref": "topic", "sha": SHA, "repo": {"full_name": "other/octo-repo"}}}
    server.will(
        Reply(200, [PULL | {"head": {"ref": "main", "sha": SHA, "repo": None}}, other, PULL])
    )
    assert client(server.url, clock).open_pulls("Stranger:topic") == (THE_PULL,)


@pytest.mark.parametrize("head", ["topic", ":topic", "stranger:", ""])
def test_a_head_without_owner_is_refused_because_github_would_name_every_pull_request(
    head: str, clock: Clock
) -> None:
    with pytest.raises(UsageError, match="OWNER:BRANCH"):
        client("http://127.0.0.1:9", clock).open_pulls(head)


def test_deleting_what_is_gone_is_done_and_updating_it_is_not(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(404, {"message": "Not Found"}), Reply(404, {"message": "Not Found"}))
    api = client(server.url, clock)
    api.delete_comment(42)
    with pytest.raises(ApiError) as caught:
        api.update_comment(42, "x")
    assert caught.value.status == 404 and not caught.value.read_only


@pytest.mark.parametrize(
    "url",
    [
        "http://github.example.com/api/v3",
        "ftp://x",
        "",
        "https://",
        "https://u:p@h",
        "https://h?x",
        "https://h:x",
        "https://h/ x",
    ],
)
def test_a_url_that_a_token_must_not_go_to_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"^GITHUB_API_URL: "):
        Api(Secret(TOKEN), REPOSITORY, api_url=url)
    if url:  # an empty one stands for the usual place
        with pytest.raises(UsageError, match=r"^GITHUB_GRAPHQL_URL: "):
            Api(Secret(TOKEN), REPOSITORY, graphql_url=url)


@pytest.mark.parametrize(
    "repository",
    [
        "octo",
        "octo/",
        "/repo",
        "a/b/c",
        "octo/..",
        "octo/.",
        "../repo",
        "octo/re po",
        "octo/repo\n",
        "o/r?x",
    ],
)
def test_what_is_no_repository_is_refused(repository: str) -> None:
    with pytest.raises(UsageError, match="is not owner/name"):
        Api(Secret(TOKEN), repository)


@pytest.mark.parametrize("value", ["", "two words", TOKEN + "\n", "\r\nX-Evil: 1", "tök"])
def test_what_is_no_token_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        Api(Secret(value), REPOSITORY)
    assert not value or value not in caught.value.diagnostics()


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/graphql"),
        ("/", "/graphql"),
        ("/api/v3", "/api/graphql"),
        ("/api/v3/", "/api/graphql"),
    ],
)
def test_graphql_is_found_beside_the_rest_api(
    base: str, path: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(CALLS["viewer"].good, CALLS["pull"].good)
    api = client(server.url + base, clock)
    assert api.viewer() == "github-actions[bot]" and api.pull(7) == THE_PULL
    assert [asked.path for asked in server.asked] == [
        path,
        f"{base.rstrip('/')}/repos/{REPOSITORY}/pulls/7",
    ]


def test_a_netrc_never_replaces_the_token(
    server: FlakyServer, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.will(CALLS["pull"].good)
    client(server.url, clock).pull(7)
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_the_machines_proxy_is_used(
    server: FlakyServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    server.will(CALLS["pull"].good)
    api = Api(
        Secret(TOKEN), REPOSITORY, api_url="http://127.0.0.2:9", sleep=clock.sleep, now=clock.now
    )
    assert api.pull(7) == THE_PULL
    assert server.asked[0].path == f"http://127.0.0.2:9/repos/{REPOSITORY}/pulls/7"


@pytest.mark.parametrize("name", NAMES)
def test_the_token_stands_in_no_error_and_no_local_of_its_traceback(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    echo = Reply(422, {"message": f"you sent Authorization: Bearer {TOKEN}", "errors": [TOKEN]})
    for reply in (echo, Reply(200, raw=b"x"), Reply(502, {}), Reply(fault="drop")):
        if name == "delete_comment" and reply.status == 200 and not reply.fault:
            continue  # nothing of its answer is read
        server.will(reply, *([echo] if name == "viewer" and reply is echo else []))
        try:
            CALLS[name].ask(client(server.url, clock, tries=1))
        except ApiError as error:
            assert error.__cause__ is None and error.__context__ is None
            assert error.__traceback__ is not None
            # the first frame is this test's, which holds the script
            ours = error.__traceback__.tb_next
            shown = traceback.TracebackException(type(error), error, ours, capture_locals=True)
            assert TOKEN not in "".join(shown.format()) + error.diagnostics() + repr(error)
        else:
            # not to be found out, and none there
            assert reply is echo and name in {
                "viewer",
                "pulls_at",
            }
