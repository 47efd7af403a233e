"""Several runs at once, and what happens between two requests of one: exactly one comment, and the
newest run's text in it.

The wait after a write is longer than any run takes from its look to its write. The tests model just
that: `Quiet.settle` returns when every run is settling or has ended. Within that, threads meet as
they like, and for two runs every order of their first calls is gone through.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from repro_gate.github import comment
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import Marker
from tests.support.github.conversation import (
    HEAD,
    NEXT,
    OLD,
    PULL,
    client,
    conversation,
    marker_of,
    say,
    text_of,
)
from tests.support.github.server import BOT, CUT, Answer, GitHub

POSTED = f"POST /repos/octo-org/trainer/issues/{PULL}/comments"
BEFORE: dict[str, tuple[Marker, ...]] = {
    "nothing": (),
    "a comment of an older commit": (marker_of(run=1, head=OLD),),
    "a comment of an older run": (marker_of(run=1),),
    "duplicates": (marker_of(run=2), marker_of(run=3, head=OLD), marker_of(run=1)),
}


class Quiet:
    """Runs that wait for each other to be done with writing."""

    def __init__(self, runs: int) -> None:
        self._changed = threading.Condition()
        self._live, self._settling, self._round = runs, 0, 0

    def settle(self, seconds: float) -> None:
        with self._changed:
            self._settling += 1
            here = self._round
            self._release()
            assert self._changed.wait_for(lambda: self._round > here, timeout=60)

    def leave(self) -> None:
        with self._changed:
            self._live -= 1
            self._release()

    def _release(self) -> None:
        if self._settling == self._live:
            self._settling, self._round = 0, self._round + 1
            self._changed.notify_all()


class Turns:
    """A conversation whose calls come in the order that `order` names the runs in; when that is
    used up, in any."""

    def __init__(self, order: Sequence[int]) -> None:
        self._changed = threading.Condition()
        self._order = list(order)

    def skip(self, run: int) -> None:
        """`run` takes no more of its turns for now: it settles, or has ended."""
        with self._changed:
            self._order = [item for item in self._order if item != run]
            self._changed.notify_all()

    def take(self, run: int, call: Callable[[], object]) -> object:
        with self._changed:
            assert self._changed.wait_for(
                lambda: not self._order or self._order[0] == run, timeout=60
            )
            try:
                return call()
            finally:
                if self._order:
                    self._order.pop(0)
                self._changed.notify_all()


class InTurn:
    """One run's view of the conversation, each call in its turn."""

    def __init__(self, api: Api, run: int, turns: Turns) -> None:
        self._api, self._run, self._turns = api, run, turns

    def __getattr__(self, name: str) -> Callable[..., Any]:
        asked = getattr(self._api, name)
        if name == "viewer":
            return asked  # type: ignore[no-any-return]

        def call(*arguments: object) -> object:
            found = asked(*arguments)
            return list(found) if name == "comments" else found

        return lambda *arguments: self._turns.take(self._run, lambda: call(*arguments))


def race(github: GitHub, markers: Sequence[Marker], order: Sequence[int] = ()) -> list[Posted]:
    """All runs at once, each in its thread with a client of its own, their calls in this order."""
    quiet, turns, posted = Quiet(len(markers)), Turns(order), [Posted("")] * len(markers)

    def run(index: int, marker: Marker) -> None:
        def settle(seconds: float) -> None:
            turns.skip(index)
            quiet.settle(seconds)

        def body(room: int, earlier: Marker | None) -> str:
            return f"told by run {marker.run_id}"

        try:
            view: Any = InTurn(client(github), index, turns)
            posted[index] = post(view, PULL, marker, body, when="always", sleep=settle)
        finally:
            turns.skip(index)
            quiet.leave()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(markers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return posted


ORDERS = [
    [int(turn in chosen) for turn in range(6)] for chosen in itertools.combinations(range(6), 3)
]


@pytest.mark.parametrize("before", BEFORE)
def test_two_runs_leave_one_comment_of_the_newer_in_any_order_of_calls(before: str) -> None:
    for order in ORDERS:
        assert after(before, order) == [text_of(marker_of(run=11))], order


def test_without_the_second_look_some_order_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comment, "ROUNDS", 1)
    assert any(after("nothing", order) != [text_of(marker_of(run=11))] for order in ORDERS)


def after(before: str, order: Sequence[int]) -> list[str]:
    """What stands after an older and a newer run had their first three calls each (comments, pull
    request, write) in `order`; the oldest comment is the one that stays."""
    with conversation() as github:
        numbers = [github.add_comment(PULL, BOT, text_of(marker)) for marker in BEFORE[before]]
        posted = race(github, [marker_of(run=10), marker_of(run=11)], order)
        assert {item.outcome for item in posted} <= {"created", "updated", "skipped"}
        assert numbers[:1] in ([], [github.comments(PULL)[0]["id"]])
        return github.bodies(PULL)


def test_gates_of_two_specs_do_not_meet_and_of_four_runs_the_newest_stays(github: GitHub) -> None:
    markers = [marker_of(run=10 + count, key=str(count) * 32) for count in range(4)]
    assert [item.outcome for item in race(github, markers)] == ["created"] * 4
    assert sorted(github.bodies(PULL)) == sorted(text_of(marker) for marker in markers)
    newest = marker_of(run=12, attempt=2)
    race(github, [newest, *(marker_of(run=run) for run in (10, 11, 12))])
    assert text_of(newest) in github.bodies(PULL) and len(github.bodies(PULL)) == 4


# Between two requests of one run.


def once(line: str, deed: Callable[[], object]) -> Callable[[str, str], None]:
    """A hook that does `deed` at the first request that is `line`."""
    waiting = [deed]

    def hook(method: str, path: str) -> None:
        if waiting and f"{method} {path}".startswith(line):
            waiting.pop()()

    return hook


def test_what_happens_between_two_requests_is_seen(github: GitHub) -> None:
    looked = f"GET /repos/octo-org/trainer/issues/{PULL}"
    number = github.add_comment(PULL, BOT, text_of(marker_of(run=9)))
    github.before = once("PATCH", lambda: github.change_comment(number, None))
    assert say(github, marker_of(run=10)).outcome == "created", "what was deleted is made anew"
    assert github.bodies(PULL) == [text_of(marker_of(run=10))]
    newer, written = marker_of(run=12, head=NEXT), len(github.writes)
    github.after = once(looked, lambda: github.change_pull(PULL, head_sha=NEXT))
    assert say(github, marker_of(run=11)).outcome == "skipped" and len(github.writes) == written

    def overtake() -> None:
        github.change_pull(PULL, head_sha=NEXT)
        say(github, newer)

    github.change_pull(PULL, head_sha=HEAD)
    github.after = once("PATCH", overtake)
    posted = say(github, marker_of(run=11))
    assert posted.outcome == "skipped" and posted.url == github.comments(PULL)[0]["html_url"]
    assert github.bodies(PULL) == [text_of(newer)]


def these(line: str, *answers: Answer | None) -> Callable[[str, str], Answer | None]:
    """A hook that gives the requests that are `line` these answers."""
    left = iter(answers)
    return lambda method, path: next(left, None) if f"{method} {path}" == line else None


@pytest.mark.parametrize("lost", [CUT, Answer(502, {"message": "Bad gateway"})])
def test_a_comment_is_made_once_whatever_answer_was_lost(github: GitHub, lost: Answer) -> None:
    github.before = lambda method, path: lost if f"{method} {path}" == POSTED else None
    assert say(github, marker_of()).outcome == "refused", "it is not tried for ever"
    assert github.writes == [POSTED] * comment.POSTS and github.bodies(PULL) == []
    github.before = these(POSTED, lost, lost)
    assert say(github, marker_of()).outcome == "created"
    assert github.writes[comment.POSTS :] == [POSTED] * 3
    github.change_comment(github.comments(PULL)[0]["id"], None)
    github.before, github.after = None, these(POSTED, CUT)
    assert say(github, marker_of()) == Posted("unchanged", url=github.comments(PULL)[0]["html_url"])
    assert github.writes[comment.POSTS + 3 :] == [POSTED]
    assert github.bodies(PULL) == [text_of(marker_of())]


def test_a_list_that_is_behind_makes_no_lasting_duplicate(github: GitHub) -> None:
    """GitHub's lists may lack a comment for a moment: a lost answer and such a list make two, and
    the next look makes them one."""
    github.after = these(POSTED, CUT)
    github.before = these(POSTED.replace("POST", "GET"), None, Answer(200, []))
    assert say(github, marker_of()).outcome == "created"
    assert github.writes.count(POSTED) == 2 and github.bodies(PULL) == [text_of(marker_of())]
