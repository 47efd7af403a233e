"""A 5xx, 403, 429, time-out and cut connection on each call of the API client: what is tried again,
for how long, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from repro_gate.github.api_errors import ApiError, Uncertain
from repro_gate.github.client import Api
from repro_gate.github.settings import Secret
from tests.support.github.api_calls import (
    CALLS,
    NAMES,
    REPEATABLE,
    REPOSITORY,
    START,
    TOKEN,
    Clock,
    client,
)
from tests.support.github.flaky_server import FlakyServer, Reply, flaky_server

FAULTS = {
    "500": Reply(500, {}),
    "502 in HTML": Reply(502, raw=b"<html>Unicorn!</html>", headers={"Content-Type": "text/html"}),
    "503": Reply(503, {}),
    "504": Reply(504, {}),
    "dropped": Reply(fault="drop"),
    "cut": Reply(200, {"half": "x" * 1000}, fault="cut"),
}
SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try "
    "again."
}
PERMISSION = Reply(
    403,
    {"message": "Resource not accessible by integration", "status": "403"},
    headers={
        "X-RateLimit-Remaining": "4999",
        "X-Accepted-GitHub-Permissions": "issues=write; pull_requests=write",
    },
)
SAID = tuple(name for name in NAMES if name != "viewer")  # for `viewer` a refusal is an answer


@pytest.fixture
def server() -> Iterator[FlakyServer]:
    with flaky_server() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("name", REPEATABLE)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_may_be_repeated_is_tried_again_after_a_fault(
    name: str, fault: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(FAULTS[fault], FAULTS[fault], CALLS[name].good)
    assert CALLS[name].ask(client(server.url, clock)) == CALLS[name].value
    assert [asked.line for asked in server.asked] == 3 * [CALLS[name].line]
    first, second = clock.slept
    assert (1.0 if CALLS[name].write else 0.5) <= first <= 1.0 <= second <= 2.0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_new_comment_is_never_written_twice(
    fault: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(FAULTS[fault])
    with pytest.raises(
        Uncertain, match=r"POST /repos/.*: it may or may not have been done"
    ) as caught:
        CALLS["create_comment"].ask(client(server.url, clock))
    assert len(server.asked) == 1 and not clock.slept
    assert caught.value.exit_code == 3 and not caught.value.read_only


@pytest.mark.parametrize("name", REPEATABLE)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_an_error_that_names_the_request(
    name: str, fault: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(*3 * [FAULTS[fault]])
    with pytest.raises(ApiError, match=r"\(3 tries\)") as caught:
        CALLS[name].ask(client(server.url, clock))
    assert CALLS[name].line.partition("?")[0] in caught.value.message
    assert caught.value.status == (None if FAULTS[fault].fault else FAULTS[fault].status)
    assert caught.value.exit_code == 3 and caught.value.remedy
    assert not isinstance(caught.value, Uncertain)


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_does_not_answer_in_time(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    tries = 1 if name == "create_comment" else 2
    server.will(*tries * [Reply(fault="hang")])
    with pytest.raises(ApiError, match=r"no answer within 0\.05 s") as caught:
        CALLS[name].ask(client(server.url, clock, read=0.05, tries=2))
    assert isinstance(caught.value, Uncertain) == (name == "create_comment")


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_that_is_refused_was_never_made_so_everything_is_tried_again(
    name: str, clock: Clock
) -> None:
    with flaky_server() as gone:
        url = gone.url
    with pytest.raises(
        ApiError, match=r"no connection could be made: Connection refused \(3 tries\)"
    ) as caught:
        CALLS[name].ask(client(url, clock))
    assert not isinstance(caught.value, Uncertain)
    assert f"http://127.0.0.1:{urlsplit(url).port}" in caught.value.remedy
    assert len(clock.slept) == 2


@pytest.mark.parametrize("name", SAID)
def test_a_missing_permission_is_said_at_once_with_the_line_to_add(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(PERMISSION)
    with pytest.raises(
        ApiError, match=r"403 to .*: Resource not accessible by integration"
    ) as caught:
        CALLS[name].ask(client(server.url, clock))
    assert "permissions: {pull-requests: write}" in caught.value.remedy
    assert (caught.value.status, caught.value.read_only) == (403, CALLS[name].write)
    assert not clock.slept


@pytest.mark.parametrize("name", NAMES)
def test_a_429_is_waited_for_as_long_as_github_says(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(
        Reply(429, {"message": "Too many requests"}, headers={"Retry-After": "7"}), CALLS[name].good
    )
    assert CALLS[name].ask(client(server.url, clock)) == CALLS[name].value
    assert clock.slept == [7.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [403, 429])
def test_a_spent_limit_is_waited_for_until_it_is_reset(
    name: str, status: int, server: FlakyServer, clock: Clock
) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START) + 90)}
    server.will(
        Reply(
            status, {"message": "API rate limit exceeded for installation ID 1."}, headers=headers
        ),
        CALLS[name].good,
    )
    assert CALLS[name].ask(client(server.url, clock)) == CALLS[name].value
    assert clock.slept == [91.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_secondary_limit_is_a_minute_and_then_twice_as_long(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(403, SECONDARY), Reply(403, SECONDARY), CALLS[name].good)
    assert CALLS[name].ask(client(server.url, clock)) == CALLS[name].value
    assert clock.slept == [60.0, 120.0]


@pytest.mark.parametrize("name", NAMES)
def test_beyond_its_patience_it_says_when_it_could_go_on(
    name: str, server: FlakyServer, clock: Clock
) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START) + 3599)}
    server.will(Reply(403, {"message": "API rate limit exceeded"}, headers=headers))
    with pytest.raises(
        ApiError, match=r"rate limit: .*it can go on in 3600 s, at 2027-01-15 09:00:00 UTC"
    ) as caught:
        CALLS[name].ask(client(server.url, clock))
    assert caught.value.status == 403 and not caught.value.read_only and not clock.slept


def test_all_waiting_together_stays_under_the_patience(server: FlakyServer, clock: Clock) -> None:
    wait = Reply(429, {}, headers={"Retry-After": "40"})
    server.will(wait, CALLS["pull"].good, wait, CALLS["pull"].good, wait)
    api = client(server.url, clock, patience=100)
    assert api.pull(7) == api.pull(7) == CALLS["pull"].value
    with pytest.raises(ApiError, match="rate limit"):
        api.pull(7)
    assert clock.slept == [40.0, 40.0]


def test_a_limit_that_never_ends_is_given_up_though_each_wait_is_short(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(*9 * [Reply(429, {}, headers={"Retry-After": "0"})])
    with pytest.raises(ApiError, match="rate limit"):
        CALLS["create_comment"].ask(client(server.url, clock))
    assert clock.slept == 8 * [1.0]


def test_graphql_says_its_limit_in_an_answer_of_200(server: FlakyServer, clock: Clock) -> None:
    limited = {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
    server.will(Reply(200, limited, headers={"Retry-After": "5"}), CALLS["viewer"].good)
    assert client(server.url, clock).viewer() == CALLS["viewer"].value
    assert clock.slept == [5.0]


def test_a_server_in_maintenance_says_how_long(server: FlakyServer, clock: Clock) -> None:
    server.will(Reply(503, {}, headers={"Retry-After": "30"}), CALLS["pull"].good)
    assert client(server.url, clock).pull(7) == CALLS["pull"].value
    assert clock.slept == [30.0]


def test_a_new_comment_that_was_only_held_back_is_written_after_the_wait_and_uncertain_when_then_cut(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(Reply(403, SECONDARY), FAULTS["dropped"])
    with pytest.raises(Uncertain):
        CALLS["create_comment"].ask(client(server.url, clock))
    assert clock.slept == [60.0]


def test_writes_are_a_second_apart_and_reads_are_not(server: FlakyServer, clock: Clock) -> None:
    names = ("create_comment", "pull", "update_comment", "viewer", "delete_comment")
    server.will(*(CALLS[name].good for name in names))
    api = client(server.url, clock)
    for name in names:
        CALLS[name].ask(api)
    assert clock.slept == [1.0, 1.0]


def test_a_write_after_a_pause_does_not_wait(server: FlakyServer, clock: Clock) -> None:
    server.will(CALLS["create_comment"].good, CALLS["update_comment"].good)
    api = client(server.url, clock)
    CALLS["create_comment"].ask(api)
    clock.time += 1.0
    CALLS["update_comment"].ask(api)
    assert not clock.slept


def test_a_delete_that_was_done_before_its_connection_was_cut_is_done(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(FAULTS["dropped"], Reply(404, {"message": "Not Found"}))
    CALLS["delete_comment"].ask(client(server.url, clock))
    assert len(server.asked) == 2


def test_trouble_at_githubs_is_not_taken_for_a_token_without_a_name(
    server: FlakyServer, clock: Clock
) -> None:
    server.will(*3 * [FAULTS["500"]])
    with pytest.raises(ApiError, match="500 to POST /graphql"):
        client(server.url, clock).viewer()


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (ValueError("a header that is none"), True),
        (requests.exceptions.InvalidProxyURL("x"), False),
    ],
)
def test_an_error_of_the_http_library_is_uncertain_for_a_new_comment_only_where_it_may_have_been_sent(
    error: Exception, sent: bool, clock: Clock
) -> None:
    class Broken(requests.Session):
        def request(self, *args: object, **kwargs: object) -> requests.Response:  # type: ignore[override]
            raise error

    api = Api(
        Secret(TOKEN),
        REPOSITORY,
        api_url="http://127.0.0.1:9",
        session=Broken(),
        sleep=clock.sleep,
        now=clock.now,
    )
    for name, uncertain in (("create_comment", sent), ("pull", False)):
        with pytest.raises(ApiError, match=f"the request failed .{type(error).__name__}") as caught:
            CALLS[name].ask(api)
        assert isinstance(caught.value, Uncertain) == uncertain and caught.value.__context__ is None
    assert not clock.slept
