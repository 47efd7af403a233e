"""`comment: on-change`, the default: every failure speaks, and of the passes those that say
something new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace as changed

from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import Marker
from tests.support.github.conversation import PULL, client, conversation, marker_of, no_sleep
from tests.support.github.server import GitHub


@pytest.fixture
def github() -> Iterator[GitHub]:
    with conversation() as server:
        yield server


def change(
    github: GitHub, marker: Marker, said: str = "", *, verdict: str = "pass", news: bool = False
) -> Posted:
    """One run's whole `post`, under `on-change`."""
    with client(github) as api:

        def told(room: int, earlier: Any) -> str:
            return (said or f"after {earlier.verdict if earlier else 'nothing'}")[:room]

        return post(
            api,
            PULL,
            changed(marker, verdict=verdict),
            told,
            when="on-change",
            verdict=verdict,
            news=news,
            sleep=no_sleep,
        )


def test_a_first_pass_without_news_is_silent_and_one_with_news_is_not(github: GitHub) -> None:
    assert change(github, marker_of(run=10)) == Posted("skipped") and github.comments(PULL) == []
    assert change(github, marker_of(run=11), news=True).outcome == "created"
    assert [body.splitlines()[1] for body in github.bodies(PULL)] == ["after nothing"]


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_each_failure_speaks_whether_it_is_news_or_not(github: GitHub, verdict: str) -> None:
    assert change(github, marker_of(run=10), verdict=verdict).outcome == "created"
    assert (
        change(github, marker_of(run=11), "with the figures of run 11", verdict=verdict).outcome
        == "updated"
    )
    assert [body.splitlines()[1] for body in github.bodies(PULL)] == ["with the figures of run 11"]


def test_a_red_comment_does_not_stay_red(github: GitHub) -> None:
    change(github, marker_of(run=10, state="aa"), verdict="fail")
    assert change(github, marker_of(run=11, state="bb")).outcome == "updated"
    assert [body.splitlines()[1] for body in github.bodies(PULL)] == ["after fail"]


def test_a_pass_like_the_one_before_writes_nothing(github: GitHub) -> None:
    change(github, marker_of(run=10, state="aa"), news=True)
    written = list(github.writes)
    assert (
        change(github, marker_of(run=11, state="aa"), "other figures", news=True).outcome
        == "unchanged"
    )
    assert github.writes == written
    assert change(github, marker_of(run=12, state="bb")).outcome == "updated"
    assert [body.splitlines()[1] for body in github.bodies(PULL)] == ["after pass"]


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
    assert change(github, changed(marker_of(run=11), cost=after)).outcome == outcome


def test_a_run_is_not_its_own_predecessor(github: GitHub) -> None:
    change(github, marker_of(run=10), verdict="fail")
    assert change(github, marker_of(run=10), verdict="fail").outcome == "unchanged"
    assert [body.splitlines()[1] for body in github.bodies(PULL)] == ["after nothing"]
