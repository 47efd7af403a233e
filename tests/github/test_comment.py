"""One comment, ours, brought up to date, and when a run speaks: through the real client, at a
GitHub of our own that is strict."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from repro_gate.github.client import Account, Comment
from repro_gate.github.comment import LIMIT, Desired, Existing, Posted, Write, decide
from repro_gate.github.event import Base, Head, PullRequest, Repository
from repro_gate.github.marker import Marker, marker_line
from tests.support.github.conversation import HEAD, OLD, PULL, marker_of, say, text_of
from tests.support.github.server import BOT, CUT, Answer, GitHub

HERE = "/repos/octo-org/trainer"
DOWN = Answer(500, {"message": "down"})


def test_the_first_run_makes_a_comment_and_the_next_writes_into_it(github: GitHub) -> None:
    first = say(github, marker_of(run=10))
    assert first.outcome == "created" and first.url == github.comments(PULL)[0]["html_url"]
    assert say(github, marker_of(run=11)) == Posted("updated", url=first.url)
    assert github.bodies(PULL) == [text_of(marker_of(run=11))]
    before, number = list(github.writes), github.comments(PULL)[0]["id"]
    assert say(github, marker_of(run=11)) == Posted("unchanged", url=first.url)
    # GitHub changes line ends; another text is a person's edit
    github.change_comment(number, text_of(marker_of(run=11), "one\ntwo").replace("\n", "\r\n"))
    assert say(github, marker_of(run=11), "one\ntwo\n").outcome == "unchanged"
    assert github.writes == before
    github.change_comment(number, text_of(marker_of(run=11), "one\nthree"))
    assert say(github, marker_of(run=11), "one\ntwo\n").outcome == "updated"


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
def test_others_comments_stay(github: GitHub, author: str, theirs: str, login: str) -> None:
    number = github.add_comment(PULL, author, theirs)
    assert say(github, marker_of(run=10), login=login).outcome == "created"
    assert say(github, marker_of(run=11), login=login).outcome == "updated"
    assert [(item["user"]["login"], item["body"]) for item in github.comments(PULL)] == [
        (author, theirs),
        (login, text_of(marker_of(run=11))),
    ]
    assert not any(str(number) in line for line in github.writes)


@pytest.mark.parametrize("login", [BOT, "octocat"])
def test_a_token_that_cannot_say_whose_it_is_has_one_comment(github: GitHub, login: str) -> None:
    refused = Answer(403, {"message": "no"})
    github.before = lambda method, path: refused if path == "/graphql" else None
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


def test_a_closed_pull_request_is_left_alone(github: GitHub) -> None:
    github.change_pull(PULL, state="closed")
    assert say(github, marker_of()) == Posted("skipped", "the pull request is closed")
    assert github.writes == []


@pytest.mark.parametrize("answer", [DOWN, CUT])
def test_trouble_at_each_call_is_an_outcome_with_its_reason(github: GitHub, answer: Answer) -> None:
    comments = f"{HERE}/issues/{PULL}/comments"
    for line in (
        "POST /graphql",
        f"GET {comments}",
        f"GET {HERE}/pulls/{PULL}",
        f"POST {comments}",
    ):
        github.before = lambda method, path, at=line: answer if f"{method} {path}" == at else None
        posted = say(github, marker_of())
        assert posted.outcome == "refused" and line.split()[1] in posted.reason
        assert github.comments(PULL) == []
    # once the comment stands, trouble does not take it back
    github.before = lambda method, path: (
        answer if method == "GET" and github.comments(PULL) else None
    )
    assert say(github, marker_of()) == Posted("created", url=github.comments(PULL)[0]["html_url"])
    # what the token may not change is not tried again
    written = len(github.writes)
    refused = Answer(404, {"message": "Resource not accessible by integration"})
    github.before = lambda method, path: refused if method == "PATCH" else None
    assert say(github, marker_of(run=11)).outcome == "refused" and len(github.writes) == written + 1


def test_the_text_is_told_its_room_and_of_the_newest_run_before_this_one(github: GitHub) -> None:
    asked: list[int] = []

    def body(room: int, earlier: Marker | None) -> str:
        asked.append(room)
        return str(earlier and earlier.verdict).ljust(room, "ä")

    def run(number: int, verdict: str) -> str:
        asked.clear()
        say(github, marker_of(run=number, verdict=verdict), body=body)
        (text,) = github.bodies(PULL)
        assert len(asked) == 1 and len(text) == LIMIT
        return text.splitlines()[1].rstrip("ä")

    assert run(10, "fail") == "None"
    assert run(10, "fail") == "None", "a run is not its own predecessor"
    assert run(11, "pass") == "fail"


# The decision by itself.

HERE_REPOSITORY = Repository("o/r")
OPEN = PullRequest(PULL, "open", Head("topic", HEAD, HERE_REPOSITORY), Base(HERE_REPOSITORY))


def existing(number: int, marker: Marker, text: str = "") -> Existing:
    return (Comment(number, f"url{number}", text_of(marker, text), Account(BOT)), marker)


def decided(marker: Marker, *ours: Existing, written: str = "", **wish: Any) -> Posted | Write:
    wish = {"when": "always", "text": text_of(marker), **wish}
    return decide(Desired(marker=marker, written=written, **wish), list(ours), OPEN)


def test_when_to_speak_is_the_users_choice() -> None:
    for when, verdict, news, makes, updates in (
        ("always", "pass", False, True, True),
        ("always", "fail", False, True, True),
        ("on-failure", "pass", True, False, True),
        ("on-failure", "fail", False, True, True),
        ("on-failure", "inconclusive", False, True, True),
        ("on-change", "pass", False, False, False),
        ("on-change", "pass", True, True, False),
        ("on-change", "fail", False, True, True),
        ("on-change", "inconclusive", False, True, True),
    ):
        marker, same = marker_of(run=11, verdict=verdict), existing(1, marker_of(run=10))
        wish: dict[str, Any] = {"when": when, "news": news}
        first, second = decided(marker, **wish), decided(marker, same, **wish)
        text = text_of(marker)
        assert first == (Write(text=text) if makes else Posted("skipped"))
        assert second == (Write(keep=1, text=text) if updates else Posted("unchanged", url="url1"))
        other = existing(1, marker_of(run=10, state="bb"))
        assert decided(marker, other, **wish) == Write(keep=1, text=text), "another state"
    for before, after, differs in (
        ((100.0, 140.0), (120.0, 180.0), False),
        ((100.0, 140.0), (140.0, 180.0), False),
        ((100.0, 140.0), (141.0, 180.0), True),
        ((100.0, 140.0), (-20.0, 99.0), True),
        ((100.0, 140.0), None, False),
        (None, (100.0, 140.0), False),
    ):
        ours = existing(1, changed(marker_of(run=10), cost=before))
        marker = changed(marker_of(run=11, verdict="pass"), cost=after)
        assert isinstance(decided(marker, ours, when="on-change"), Write) == differs, after


def test_the_lowest_of_duplicates_stays_and_a_run_writes_over_older_ones_alone() -> None:
    found = (
        existing(3, marker_of(run=30)),
        existing(1, marker_of(run=10)),
        existing(2, marker_of(run=99, head=OLD)),
    )
    for run, newest in ((20, 30), (40, 40)):
        assert decided(marker_of(run=run), *found) == Write(
            keep=1, text=text_of(marker_of(run=newest)), surplus=(2, 3)
        )
    assert decided(marker_of(run=11), existing(1, marker_of(run=10)), written="updated") == Write(
        keep=1, text=text_of(marker_of(run=11))
    )
    other = existing(1, marker_of(run=10), "the other job")
    assert isinstance(decided(marker_of(run=10), other), Write)
    assert decided(marker_of(run=10), other, written="updated") == Posted("updated", url="url1")
