"""The API client at a GitHub of our own that keeps what it is told: all is well, a 403, a 429 with
Retry-After, a 502 and then all is well, five pages (two runs at once: `test_races`); and where the
token goes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from repro_gate.github import client as module
from repro_gate.github import transport
from repro_gate.github.client import Api
from repro_gate.github.transport import PAUSES, Answer, ApiError, Call, Uncertain, refused
from tests.support.github import server
from tests.support.github.conversation import HEAD, PULL, client
from tests.support.github.server import BOT, CUT, GitHub

REPOSITORY = "octo-org/trainer"
IN = f"/repos/{REPOSITORY}"
COMMENTS = f"{IN}/issues/{PULL}/comments"
GET_PULL = f"GET {IN}/pulls/{PULL}"
# what may be repeated, and the one call that may not
CALLS: dict[str, Callable[[Api], object]] = {
    "POST /graphql": lambda api: api.viewer(),
    GET_PULL: lambda api: api.pull(PULL),
    f"GET {IN}/commits/{HEAD}/pulls": lambda api: api.pulls_at(HEAD),
    f"GET {IN}/pulls": lambda api: api.open_pulls("stranger:topic"),
    f"GET {COMMENTS}": lambda api: list(api.comments(PULL)),
    f"PATCH {IN}/issues/comments/1500000001": lambda api: api.update_comment(1_500_000_001, "x"),
}
NEW = f"POST {COMMENTS}"
ALL: dict[str, Callable[[Api], object]] = {**CALLS, NEW: lambda api: api.create_comment(PULL, "x")}
BAD_GATEWAY = server.Answer(502, b"<html>Unicorn!</html>")


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as found:
        found.add_pull(PULL, HEAD, head_repository="stranger/trainer")
        found.add_comment(PULL, BOT, "first")
        yield found
    assert found.faults == []


@pytest.fixture
def api(github: GitHub) -> Api:
    return client(github)


def answering(github: GitHub, line: str, *answers: server.Answer) -> None:
    """The next requests that are `line` get these answers."""
    left = list(answers)
    github.before = lambda method, path: (
        left.pop(0) if left and f"{method} {path}" == line else None
    )


def always(answer: server.Answer) -> Callable[[str, str], server.Answer]:
    return lambda method, path: answer


def test_each_call_does_what_it_says(github: GitHub, api: Api, slept: list[float]) -> None:
    assert api.viewer() == BOT
    pull = api.pull(PULL)
    assert pull is not None and pull.fork and (pull.number, pull.head.sha) == (PULL, HEAD)
    assert api.pulls_at(HEAD) == api.open_pulls("stranger:topic") == [pull]
    made = api.create_comment(PULL, "Me too")
    assert api.update_comment(made.id, "Me three").id == made.id
    comments = [(item.author, item.body) for item in api.comments(PULL)]
    assert comments == [(BOT, "first"), (BOT, "Me three")]
    api.delete_comment(made.id)
    assert github.bodies(PULL) == ["first"] and not slept
    with GitHub(enterprise=True) as github:
        github.add_pull(PULL, HEAD)
        api = client(github)
        assert api.viewer() == BOT and api.pull(PULL) is not None and github.faults == []


def test_what_is_not_there_is_nothing(github: GitHub, api: Api) -> None:
    github.add_pull(8, "c" * 40, head_repository=None)
    gone = api.pull(8)
    assert gone is not None and gone.head_repository is None and gone.fork
    assert api.pull(9) is None
    assert api.pulls_at("d" * 40) == [] == api.open_pulls("stranger:other")
    for call in (lambda: api.delete_comment(1), lambda: api.update_comment(1, "x")):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.status == 404
    answering(github, "POST /graphql", server.Answer(200, {"errors": [{"type": "FORBIDDEN"}]}))
    assert api.viewer() is None


# Five pages.


def test_lists_have_an_end(github: GitHub, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(449):
        github.add_comment(PULL, "octocat", f"remark {number}")
    assert len(list(api.comments(PULL))) == 450
    assert github.requests == [f"GET {COMMENTS}"] * 5
    monkeypatch.setattr(module, "MOST_PAGES", 3)
    with GitHub() as elsewhere:
        link = {"Link": f'<{elsewhere.url}{COMMENTS}?page=2>; rel="next"'}
        github.before = always(server.Answer(200, [], link))
        with pytest.raises(ApiError, match="more than 3 pages"):
            list(api.comments(PULL))
        assert len(github.requests) == 5 + 3 and not elsewhere.requests


# A 403.


def test_a_refusal_has_its_kind_github_s_words_and_the_permission_to_add() -> None:
    for method, status, message, reason_id in (
        ("POST", 403, "Must have admin rights to Repository.", "github/permission"),
        ("PATCH", 404, "Resource not accessible by integration", "github/permission"),
        ("GET", 403, "Resource not accessible by integration", "github/permission"),
        ("POST", 403, "", "github/permission"),
        ("POST", 404, "Not Found", "github/api"),
        ("POST", 422, "Resource not accessible by integration", "github/api"),
        ("POST", 403, "Unable to create comment because issue is locked.", "github/closed"),
        ("GET", 403, "Resource protected by organization SAML", "github/closed"),
        ("GET", 401, "Bad credentials", "github/unauthorized"),
        ("GET", 301, "Moved Permanently", "github/redirect"),
        ("GET", 403, "You have exceeded a secondary rate limit.", "github/rate-limit"),
        ("GET", 429, "", "github/rate-limit"),
    ):
        error = refused(Call(method, "https://h/x"), Answer(status, {}, b"", False), message)
        assert (error.reason_id, error.status, error.exit_code) == (reason_id, status, 3)
        permission = f"permissions: {{pull-requests: {'read' if method == 'GET' else 'write'}}}"
        assert (permission in error.remedy) == (reason_id == "github/permission")
        assert message in error.message


def test_what_github_says_is_shown_on_one_short_line(github: GitHub, api: Api) -> None:
    long = "bad\n::error::x\x1b[31m\u202e" + "y" * 10_000
    for body, words in (
        ({"message": "No", "errors": ["why"]}, 'No; ["why"]'),
        ({"message": long}, "bad"),
        (b"<html>", ""),
        (b"[" * 200_000, ""),
    ):
        github.before = always(server.Answer(422, body))
        with pytest.raises(ApiError) as caught:
            api.pull(PULL)
        assert words in caught.value.message and len(caught.value.message) <= 400
        assert caught.value.message.isprintable()


# A 429 with Retry-After, and its kin.


@pytest.mark.parametrize("status", [429, 403])
@pytest.mark.parametrize("line", ALL)
def test_a_rate_limit_is_waited_for_as_long_as_github_says(
    line: str, status: int, github: GitHub, api: Api, slept: list[float]
) -> None:
    answering(github, line, server.Answer(status, {}, {"Retry-After": "7"}))
    assert ALL[line](api)
    assert slept == [7.0] and github.requests == [line] * 2


@pytest.mark.parametrize(
    ("headers", "when"),
    [
        ({"Retry-After": "340"}, "in 340 s"),
        ({"Retry-After": "1" * 15}, "run the job again"),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000090"},
            "after 2027-01-15 08:01:30 UTC",
        ),
    ],
)
def test_beyond_its_patience_it_says_when_it_could_go_on(
    github: GitHub, api: Api, slept: list[float], headers: dict[str, str], when: str
) -> None:
    github.before = always(server.Answer(403, {}, headers))
    with pytest.raises(ApiError) as caught:
        api.pull(PULL)
    assert caught.value.reason_id == "github/rate-limit" and when in caught.value.remedy
    assert slept == [] and len(github.requests) == 1


def test_all_requests_together_have_five_minutes(
    github: GitHub, api: Api, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(transport.time, "monotonic", lambda: now + transport.PATIENCE - 10)
    github.before = always(server.Answer(403, {}, {"Retry-After": "20"}))
    with pytest.raises(ApiError, match="GitHub answered 403"):
        api.pull(PULL)
    assert slept == [] and len(github.requests) == 1
    monkeypatch.setattr(transport.time, "monotonic", lambda: now + transport.PATIENCE + 10)
    with pytest.raises(ApiError, match="more than 300 s together"):
        api.pull(PULL)
    assert len(github.requests) == 1


# A 502, and then all is well.


@pytest.mark.parametrize("line", CALLS)
@pytest.mark.parametrize(
    "fault", [BAD_GATEWAY, server.Answer(500, {}), CUT], ids=["502", "500", "cut"]
)
def test_what_may_be_repeated_is_tried_again_after_a_fault_and_one_that_stays_names_the_request(
    line: str, fault: server.Answer, github: GitHub, api: Api, slept: list[float]
) -> None:
    answering(github, line, fault, fault)
    assert CALLS[line](api)
    assert github.requests == [line] * 3
    assert len(slept) == 2 and max(slept) <= 2
    github.before = always(fault)
    with pytest.raises(ApiError) as caught:
        CALLS[line](api)
    assert line in caught.value.message and caught.value.remedy
    assert len(github.requests) == 4 + len(PAUSES)


@pytest.mark.parametrize(
    "fault", [BAD_GATEWAY, server.Answer(201, []), server.Answer(201, b"<p>"), CUT]
)
def test_no_comment_is_written_twice(fault: server.Answer, github: GitHub, api: Api) -> None:
    github.after = always(fault)
    with pytest.raises(Uncertain):
        api.create_comment(PULL, "once")
    assert github.bodies(PULL) == ["first", "once"] and github.requests == [NEW]


def test_a_server_that_is_silent_is_named(github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TIMEOUTS", (5.0, 0.05))
    monkeypatch.setattr(transport, "PAUSES", ())
    github.before = lambda method, path: time.sleep(0.3)
    for url in (github.url, "http://127.0.0.1:9"):
        with pytest.raises(ApiError) as caught:
            client(github, url=url).pull(PULL)
        assert url in caught.value.remedy and caught.value.reason_id == "github/unreachable"


# What comes that is not GitHub's.


@pytest.mark.parametrize("line", CALLS)
@pytest.mark.parametrize(
    "body",
    [{"id": "7"}, b"null", [None], b"<html>login</html>", b"\xff\xfe", b"[" * 200_000],
    ids=["field", "null", "nulls", "html", "not UTF-8", "deep"],
)
def test_odd_answers_are_refused(line: str, body: object, github: GitHub, api: Api) -> None:
    github.before = always(server.Answer(200, body))
    if line == "POST /graphql" and body == {"id": "7"}:
        assert api.viewer() is None
        return
    with pytest.raises(ApiError) as caught:
        CALLS[line](api)
    assert caught.value.reason_id == "github/shape" and caught.value.remedy


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_answer_over_the_size_limit_is_not_read_to_its_end(
    github: GitHub, api: Api, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1000)
    github.before = always(server.Answer(200, b"[]".ljust(1000 + more)))
    with pytest.raises(ApiError, match="larger than") if more > 0 else nullcontext():
        assert api.pulls_at(HEAD) == []


# Where the token goes.


@pytest.mark.parametrize("status", [301, 307])
@pytest.mark.parametrize("line", ALL)
def test_a_redirect_is_an_error_and_never_sees_the_token(
    line: str, status: int, github: GitHub, api: Api, slept: list[float]
) -> None:
    with GitHub() as elsewhere:
        github.before = always(server.Answer(status, {}, {"Location": elsewhere.url}))
        if line == "POST /graphql":
            assert api.viewer() is None
        else:
            with pytest.raises(ApiError) as caught:
                ALL[line](api)
            assert caught.value.reason_id == "github/redirect"
        assert not elsewhere.requests and not slept


def test_a_netrc_never_replaces_the_token_and_the_machines_proxy_is_used(
    github: GitHub, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert api.pull(PULL) is not None
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", github.url)
    client(github, url="http://127.0.0.2:9").pull(PULL)
    assert github.requests == [GET_PULL] * 2


TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
ECHO = {"message": f"you sent Authorization: Bearer {TOKEN}", "errors": [TOKEN]}
ANSWERS = (server.Answer(401, ECHO), server.Answer(200, b"x"), server.Answer(502, ECHO), CUT)


@pytest.mark.parametrize("line", ALL)
@pytest.mark.parametrize("answer", ANSWERS)
def test_no_error_holds_the_token(line: str, answer: server.Answer, github: GitHub) -> None:
    api = client(github, value=TOKEN)
    github.before = always(answer)
    with pytest.raises(ApiError) as caught:
        ALL[line](api)
    error = caught.value
    assert error.__cause__ is None and error.__traceback__ is not None
    # the first frames are this test's, which hold the answers
    ours = error.__traceback__.tb_next
    assert ours is not None
    shown = traceback.TracebackException(type(error), error, ours.tb_next, capture_locals=True)
    assert TOKEN not in "".join(shown.format()) + error.diagnostics() + repr(error)
