"""One comment, ours, brought up to date: through the real client, at a GitHub of our own that is
strict."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from repro_gate.github.comment import LIMIT, Action, Desired, Existing, Posted, decide, post
from repro_gate.github.marker import Marker, marker_line
from tests.support.github.answers import a_comment, a_pull
from tests.support.github.conversation import (
    HEAD,
    OLD,
    PULL,
    client,
    conversation,
    marker_of,
    no_sleep,
    say,
    text_of,
)
from tests.support.github.server import BOT, CUT, Answer, GitHub


@pytest.fixture
def github() -> Iterator[GitHub]:
    with conversation() as server:
        yield server


def test_the_first_run_makes_a_comment_and_the_next_writes_into_it(github: GitHub) -> None:
    first = say(github, marker_of(run=10))
    assert first.outcome == "created" and first.url == github.comments(PULL)[0]["html_url"]
    assert say(github, marker_of(run=11)) == Posted("updated", url=first.url)
    assert github.bodies(PULL) == [text_of(marker_of(run=11))]


def test_an_equal_comment_is_not_written_again(github: GitHub) -> None:
    say(github, marker_of())
    before = list(github.writes)
    assert say(github, marker_of()) == Posted("unchanged", url=github.comments(PULL)[0]["html_url"])
    assert github.writes == before


def test_line_ends_that_github_changed_are_no_difference(github: GitHub) -> None:
    number = github.add_comment(PULL, BOT, text_of(marker_of(), "one\ntwo").replace("\n", "\r\n"))
    assert say(github, marker_of(), "one\ntwo\n").outcome == "unchanged"
    github.change_comment(number, text_of(marker_of(), "one\nthree"))
    assert say(github, marker_of(), "one\ntwo\n").outcome == "updated", "a person's edit is one"


def test_another_author_who_plants_our_marker_gets_nothing(github: GitHub) -> None:
    planted = text_of(marker_of(run=99), "all is well")
    number = github.add_comment(PULL, "mallory", planted)
    assert say(github, marker_of(run=10)).outcome == "created"
    assert say(github, marker_of(run=11)).outcome == "updated"
    assert [(item["user"]["login"], item["body"]) for item in github.comments(PULL)] == [
        ("mallory", planted),
        (BOT, text_of(marker_of(run=11))),
    ]
    assert not any(str(number) in line for line in github.writes)


def test_a_marker_quoted_in_another_comment_of_the_bot_is_nothing(github: GitHub) -> None:
    github.add_comment(PULL, BOT, f"> {marker_line(marker_of())}\nwhat is this?")
    github.add_comment(PULL, BOT, f"Another action\n{text_of(marker_of())}")
    assert say(github, marker_of()).outcome == "created"
    assert len(github.comments(PULL)) == 3


def test_a_comment_whose_marker_was_taken_out_is_a_persons(github: GitHub) -> None:
    say(github, marker_of(run=10))
    github.change_comment(github.comments(PULL)[0]["id"], "I took this over.")
    assert say(github, marker_of(run=11)).outcome == "created"
    assert github.bodies(PULL) == ["I took this over.", text_of(marker_of(run=11))]


@pytest.mark.parametrize("login", ["octocat", "my-own-app[bot]"])
def test_a_token_of_its_own_has_its_own_comment(github: GitHub, login: str) -> None:
    github.add_comment(PULL, BOT, text_of(marker_of(run=9)))
    assert say(github, marker_of(run=10), login=login).outcome == "created"
    assert say(github, marker_of(run=11), login=login).outcome == "updated"
    assert [item["user"]["login"] for item in github.comments(PULL)] == [BOT, login]


def test_a_token_that_cannot_say_whose_it_is_counts_as_the_bot_of_actions(github: GitHub) -> None:
    github.before = lambda method, path: (
        Answer(403, {"message": "no"}) if path in {"/graphql", "/user"} else None
    )
    assert say(github, marker_of(run=10)).outcome == "created"
    assert say(github, marker_of(run=11)).outcome == "updated"
    assert github.bodies(PULL) == [text_of(marker_of(run=11))]


def test_a_token_that_cannot_say_whose_it_is_learns_it_from_what_it_writes(github: GitHub) -> None:
    github.before = lambda method, path: (
        Answer(403, {"message": "no"}) if path in {"/graphql", "/user"} else None
    )
    urls = {say(github, marker_of(run=run), login="octocat").url for run in (12, 13, 14)}
    assert urls == {github.comments(PULL)[0]["html_url"]}
    assert github.bodies(PULL) == [text_of(marker_of(run=14))]


# What is too late.


def test_an_older_commit_does_not_speak(github: GitHub) -> None:
    say(github, marker_of(run=20, head=HEAD))
    late = say(github, marker_of(run=21, head=OLD))
    assert late.outcome == "skipped"
    assert "newer commit" in late.reason
    assert HEAD[:7] in late.reason
    assert OLD[:7] in late.reason
    assert github.bodies(PULL) == [text_of(marker_of(run=20))]


@pytest.mark.parametrize(("run", "attempt"), [(9, 9), (10, 1)])
def test_an_older_run_of_the_same_commit_does_not_speak(
    github: GitHub, run: int, attempt: int
) -> None:
    say(github, marker_of(run=10, attempt=2))
    late = say(github, marker_of(run=run, attempt=attempt))
    assert late.outcome == "skipped" and "newer run" in late.reason and late.url
    assert github.bodies(PULL) == [text_of(marker_of(run=10, attempt=2))]


def test_a_closed_pull_request_is_left_alone(github: GitHub) -> None:
    github.change_pull(PULL, state="closed")
    assert say(github, marker_of()) == Posted("skipped", "the pull request is closed")
    assert github.writes == []


# When to speak.


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_on_failure_speaks_of_a_failure_and_takes_it_back(github: GitHub, verdict: str) -> None:
    assert say(github, marker_of(run=10), when="on-failure", verdict="pass") == Posted("skipped")
    assert github.comments(PULL) == []
    assert say(github, marker_of(run=11), when="on-failure", verdict=verdict).outcome == "created"
    assert (
        say(github, marker_of(run=12), "all is well", when="on-failure", verdict="pass").outcome
        == "updated"
    )
    assert github.bodies(PULL) == [text_of(marker_of(run=12), "all is well")]


# What GitHub refuses.


def test_a_read_only_token_is_an_outcome_with_the_permission_line(github: GitHub) -> None:
    with client(github, write=False) as api:
        posted = post(
            api,
            PULL,
            marker_of(),
            lambda room, _: "text",
            when="always",
            verdict="fail",
            sleep=no_sleep,
        )
    assert posted.outcome == "refused" and "permissions: {pull-requests: write}" in posted.reason
    assert "Resource not accessible by integration" in posted.reason


def test_a_locked_conversation_is_an_outcome(github: GitHub) -> None:
    github.change_pull(PULL, locked=True)
    posted = say(github, marker_of())
    assert posted.outcome == "refused" and "locked" in posted.reason


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/graphql"),
        ("GET", f"/repos/octo-org/trainer/issues/{PULL}/comments"),
        ("GET", f"/repos/octo-org/trainer/pulls/{PULL}"),
        ("POST", f"/repos/octo-org/trainer/issues/{PULL}/comments"),
    ],
)
@pytest.mark.parametrize(
    "answer", [Answer(500, {"message": "down"}), Answer(401, {"message": "Bad credentials"}), CUT]
)
def test_trouble_at_each_call_is_an_outcome_with_its_reason(
    github: GitHub, method: str, path: str, answer: Answer
) -> None:
    github.before = lambda asked, at: answer if (asked, at) == (method, path) else None
    posted = say(github, marker_of())
    assert posted.outcome == "refused" and path in posted.reason and github.comments(PULL) == []


def test_trouble_after_the_comment_stands_does_not_take_it_back(github: GitHub) -> None:
    github.before = lambda method, path: (
        Answer(500, {"message": "down"}) if method == "GET" and github.comments(PULL) else None
    )
    posted = say(github, marker_of())
    assert posted == Posted("created", url=github.comments(PULL)[0]["html_url"])


# Size.


def test_the_text_gets_the_room_that_the_marker_leaves(github: GitHub) -> None:
    asked: list[int] = []

    def body(room: int, _: Marker | None) -> str:
        asked.append(room)
        return "ä" * room

    with client(github) as api:
        assert (
            post(
                api, PULL, marker_of(), body, when="always", verdict="fail", sleep=no_sleep
            ).outcome
            == "created"
        )
    assert len(asked) == 1 and len(github.bodies(PULL)[0]) == LIMIT


# The decision by itself.

THE_PULL = a_pull(PULL, HEAD, "o/r", "o/r")


def existing(number: int, marker: Marker) -> Existing:
    return Existing(a_comment(number, text_of(marker), BOT, f"url{number}"), marker)


def desired(marker: Marker, written: str = "") -> Desired:
    return Desired(
        marker=marker, text=text_of(marker), when="always", verdict="fail", written=written
    )


def test_of_duplicates_the_lowest_stays_with_the_newest_text() -> None:
    found = [
        existing(3, marker_of(run=30)),
        existing(1, marker_of(run=10)),
        existing(2, marker_of(run=99, head=OLD)),
    ]
    assert decide(desired(marker_of(run=20)), found, THE_PULL) == Action(
        keep=1, text=text_of(marker_of(run=30)), surplus=(2, 3)
    )
    assert decide(desired(marker_of(run=40)), found, THE_PULL) == Action(
        keep=1, text=text_of(marker_of(run=40)), own=True, surplus=(2, 3)
    )


def test_a_run_that_has_written_and_sees_an_older_one_writes_again() -> None:
    found = [existing(1, marker_of(run=10))]
    assert decide(desired(marker_of(run=11), "updated"), found, THE_PULL) == Action(
        keep=1, text=text_of(marker_of(run=11)), own=True
    )


def test_two_jobs_of_one_run_do_not_write_in_turns() -> None:
    other = Existing(
        a_comment(1, text_of(marker_of(run=10), "the other job"), BOT, "url1"), marker_of(run=10)
    )
    assert decide(desired(marker_of(run=10)), [other], THE_PULL).own
    assert decide(desired(marker_of(run=10), "updated"), [other], THE_PULL) == Action(
        Posted("updated", url="url1")
    )
