"""One comment, ours, brought up to date, and when a run speaks: through the real client, at a
GitHub of our own that is strict."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace as changed

from repro_gate.github.client import Account, Comment
from repro_gate.github.comment import LIMIT, Desired, Existing, Posted, Write, decide
from repro_gate.github.event import Base, Head, PullRequest, Repository
from repro_gate.github.marker import Marker, marker_line
from tests.support.github.conversation import HEAD, OLD, PULL, conversation, marker_of, say, text_of
from tests.support.github.server import BOT, CUT, Answer, GitHub

HERE = "/repos/octo-org/trainer"
DOWN = Answer(500, {"message": "down"})


@pytest.fixture
def github() -> Iterator[GitHub]:
    with conversation() as server:
        yield server


def test_the_first_run_makes_a_comment_the_next_writes_into_it_and_an_equal_one_does_not(
    github: GitHub,
) -> None:
    first = say(github, marker_of(run=10))
    assert first.outcome == "created" and first.url == github.comments(PULL)[0]["html_url"]
    assert say(github, marker_of(run=11)) == Posted("updated", url=first.url)
    assert github.bodies(PULL) == [text_of(marker_of(run=11))]
    before = list(github.writes)
    assert say(github, marker_of(run=11)) == Posted("unchanged", url=first.url)
    assert github.writes == before


def test_line_ends_that_github_changed_are_no_difference(github: GitHub) -> None:
    number = github.add_comment(PULL, BOT, text_of(marker_of(), "one\ntwo").replace("\n", "\r\n"))
    assert say(github, marker_of(), "one\ntwo\n").outcome == "unchanged"
    github.change_comment(number, text_of(marker_of(), "one\nthree"))
    assert say(github, marker_of(), "one\ntwo\n").outcome == "updated", "a person's edit is one"


PLANTED = text_of(marker_of(run=99), "all is well")


@pytest.mark.parametrize(
    ("author", "theirs", "login"),
    [
        ("mallory", PLANTED, BOT),  # whoever plants our marker gets nothing
        (BOT, f"> {marker_line(marker_of())}\nwhat is this?", BOT),  # quoted
        (BOT, f"Another action\n{text_of(marker_of())}", BOT),
        (BOT, "I took this over.", BOT),  # a person took the marker out
        (BOT, text_of(marker_of(run=9)), "octocat"),  # a token of its own has its own comment
        (BOT, text_of(marker_of(run=9)), "my-own-app[bot]"),
    ],
)
def test_what_is_not_ours_stays_as_it_is(
    github: GitHub, author: str, theirs: str, login: str
) -> None:
    number = github.add_comment(PULL, author, theirs)
    assert say(github, marker_of(run=10), login=login).outcome == "created"
    assert say(github, marker_of(run=11), login=login).outcome == "updated"
    assert [(item["user"]["login"], item["body"]) for item in github.comments(PULL)] == [
        (author, theirs),
        (login, text_of(marker_of(run=11))),
    ]
    assert not any(str(number) in line for line in github.writes)


@pytest.mark.parametrize("login", [BOT, "octocat"])
def test_a_token_that_cannot_say_whose_it_is_counts_as_the_bot_of_actions_or_learns_it_by_writing(
    github: GitHub, login: str
) -> None:
    github.before = lambda method, path: (
        Answer(403, {"message": "no"}) if path in {"/graphql", "/user"} else None
    )
    urls = {say(github, marker_of(run=run), login=login).url for run in (12, 13, 14)}
    assert urls == {github.comments(PULL)[0]["html_url"]}
    assert github.bodies(PULL) == [text_of(marker_of(run=14))]


# What is too late, and what is refused.


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (marker_of(run=11, head=OLD), "newer commit"),
        (marker_of(run=9, attempt=9), "newer run"),
        (marker_of(run=10, attempt=1), "newer run"),
    ],
)
def test_an_older_commit_or_run_does_not_speak(github: GitHub, late: Marker, why: str) -> None:
    say(github, marker_of(run=10, attempt=2))
    posted = say(github, late)
    assert posted.outcome == "skipped" and why in posted.reason
    if why == "newer run":
        assert posted.url
    else:
        assert HEAD[:7] in posted.reason and OLD[:7] in posted.reason
    assert github.bodies(PULL) == [text_of(marker_of(run=10, attempt=2))]


def test_a_closed_pull_request_is_left_alone_and_a_locked_conversation_is_an_outcome(
    github: GitHub,
) -> None:
    github.change_pull(PULL, locked=True)
    posted = say(github, marker_of())
    assert posted.outcome == "refused" and "locked" in posted.reason
    written = list(github.writes)
    github.change_pull(PULL, locked=False, state="closed")
    assert say(github, marker_of()) == Posted("skipped", "the pull request is closed")
    assert github.writes == written


@pytest.mark.parametrize(
    "line",
    [
        "POST /graphql",
        f"GET {HERE}/issues/{PULL}/comments",
        f"GET {HERE}/pulls/{PULL}",
        f"POST {HERE}/issues/{PULL}/comments",
    ],
)
@pytest.mark.parametrize("answer", [DOWN, Answer(401, {"message": "Bad credentials"}), CUT])
def test_trouble_at_each_call_is_an_outcome_with_its_reason(
    github: GitHub, line: str, answer: Answer
) -> None:
    github.before = lambda method, path: answer if f"{method} {path}" == line else None
    posted = say(github, marker_of())
    assert posted.outcome == "refused" and line.split()[1] in posted.reason
    assert github.comments(PULL) == []


def test_trouble_after_the_comment_stands_does_not_take_it_back(github: GitHub) -> None:
    github.before = lambda method, path: DOWN if method == "GET" and github.comments(PULL) else None
    assert say(github, marker_of()) == Posted("created", url=github.comments(PULL)[0]["html_url"])


def test_the_text_gets_the_room_that_the_marker_leaves(github: GitHub) -> None:
    asked: list[int] = []

    def body(room: int, _: Marker | None) -> str:
        asked.append(room)
        return "ä" * room

    assert say(github, marker_of(), body=body).outcome == "created"
    assert len(asked) == 1 and len(github.bodies(PULL)[0]) == LIMIT


# When to speak: `on-failure`, and `on-change`, the default.


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_on_failure_speaks_of_a_failure_and_takes_it_back(github: GitHub, verdict: str) -> None:
    def outcome(run: int, verdict: str) -> str:
        return say(github, marker_of(run=run), when="on-failure", verdict=verdict).outcome

    assert outcome(10, "pass") == "skipped" and github.comments(PULL) == []
    assert (outcome(11, verdict), outcome(12, "pass")) == ("created", "updated")
    assert github.bodies(PULL) == [text_of(marker_of(run=12))]


def change(
    github: GitHub, marker: Marker, said: str = "", *, verdict: str = "pass", news: bool = False
) -> tuple[str, list[str]]:
    """One run's whole `post` under `on-change`: its outcome, and the texts that then stand."""

    def told(room: int, earlier: Marker | None) -> str:
        return (said or f"after {earlier.verdict if earlier else 'nothing'}")[:room]

    marked = changed(marker, verdict=verdict)
    posted = say(github, marked, when="on-change", verdict=verdict, news=news, body=told)
    return posted.outcome, [body.splitlines()[1] for body in github.bodies(PULL)]


def test_a_first_pass_without_news_is_silent_and_one_with_news_is_not(github: GitHub) -> None:
    assert change(github, marker_of(run=10)) == ("skipped", [])
    assert change(github, marker_of(run=11), news=True) == ("created", ["after nothing"])


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_each_failure_speaks_whether_it_is_news_or_not_and_does_not_stay_red(
    github: GitHub, verdict: str
) -> None:
    assert change(github, marker_of(run=10), verdict=verdict) == ("created", ["after nothing"])
    # a run is not its own predecessor
    assert change(github, marker_of(run=10), verdict=verdict) == ("unchanged", ["after nothing"])
    assert change(github, marker_of(run=11), "run 11", verdict=verdict) == ("updated", ["run 11"])
    after = change(github, marker_of(run=12, state="bb"))
    assert after == ("updated", [f"after {verdict}"])


def test_a_pass_like_the_one_before_writes_nothing(github: GitHub) -> None:
    change(github, marker_of(run=10, state="aa"), news=True)
    written = list(github.writes)
    same = change(github, marker_of(run=11, state="aa"), "other figures", news=True)
    assert same == ("unchanged", ["after nothing"]) and github.writes == written
    assert change(github, marker_of(run=12, state="bb")) == ("updated", ["after pass"])


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ((100, 140), (120, 180), "unchanged"),
        ((100, 140), (140, 180), "unchanged"),
        ((100, 140), (141, 180), "updated"),
        ((100, 140), (-20, 99), "updated"),
        ((100, 140), None, "unchanged"),
        (None, (100, 140), "unchanged"),
    ],
)
def test_a_pass_speaks_where_the_cost_is_another(
    github: GitHub, before: tuple[int, int] | None, after: tuple[int, int] | None, outcome: str
) -> None:
    change(github, changed(marker_of(run=10), cost=before), news=True)
    assert change(github, changed(marker_of(run=11), cost=after))[0] == outcome


# The decision by itself.


def existing(number: int, marker: Marker, said: str = "") -> Existing:
    found = Comment(number, f"url{number}", text_of(marker, said), Account(BOT))
    return Existing(found, marker)


def decided(marker: Marker, *found: Existing, written: str = "") -> Posted | Write:
    wish = Desired(
        marker=marker, text=text_of(marker), when="always", verdict="fail", written=written
    )
    here = Repository("o/r")
    pull = PullRequest(PULL, "open", Head("topic", HEAD, here), Base("main", here))
    return decide(wish, list(found), pull)


def test_of_duplicates_the_lowest_stays_with_the_newest_text() -> None:
    found = (
        existing(3, marker_of(run=30)),
        existing(1, marker_of(run=10)),
        existing(2, marker_of(run=99, head=OLD)),
    )
    assert decided(marker_of(run=20), *found) == Write(
        keep=1, text=text_of(marker_of(run=30)), surplus=(2, 3)
    )
    assert decided(marker_of(run=40), *found) == Write(
        keep=1, text=text_of(marker_of(run=40)), surplus=(2, 3)
    )


def test_a_run_that_has_written_and_sees_an_older_one_writes_again() -> None:
    assert decided(marker_of(run=11), existing(1, marker_of(run=10)), written="updated") == Write(
        keep=1, text=text_of(marker_of(run=11))
    )


def test_two_jobs_of_one_run_do_not_write_in_turns() -> None:
    other = existing(1, marker_of(run=10), "the other job")
    assert isinstance(decided(marker_of(run=10), other), Write)
    assert decided(marker_of(run=10), other, written="updated") == Posted("updated", url="url1")
