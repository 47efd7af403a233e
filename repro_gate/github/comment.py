"""The sticky comment: one for each gate and pull request, found by the hidden marker in its first
line, updated in place by the newest run.

GitHub has no compare-and-swap for comments, so `post` goes in rounds: read all comments and the
pull request's head, decide (`decide`, a pure function), act, wait for `SETTLE`, and read again
until nothing is left to do. With any number of runs at once, one comment is left, the one with the
lowest id, with the newest run's text, as long as no run takes longer than `SETTLE` from its read to
the end of its write. A run that stalls there can overwrite a newer run of the same head; the next
run corrects it. Duplicates go with the next post.

A comment is ours by its marker and its author: everybody who may comment can write a marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from repro_gate.github.api_errors import ApiError, Uncertain
from repro_gate.github.client import Api, Comment
from repro_gate.github.event import PullRequest
from repro_gate.github.marker import Marker, apart, marker_line, read_marker

# characters of a comment; GitHub answers "Body is too long (maximum is 65536 characters)"
LIMIT = 65_536
SHORTEST = 2_000  # below this no shorter form is asked for
SETTLE = 1.0  # seconds between a write and the look that makes sure of it
ROUNDS = 10  # looks at most; each but the first is one `SETTLE` later
POSTS = 3  # new comments at most, where GitHub did not say whether it made one
ACTIONS_BOT = "github-actions[bot]"  # whose comments those of GITHUB_TOKEN are

# room in characters, and the marker of the comment that is replaced
Body = Callable[[int, Marker | None], str]


@dataclass(frozen=True)
class Posted:
    """What came of a comment. `outcome`: `created`, `updated`, `unchanged`, `skipped` (with
    `reason`) or `refused` (a read-only token)."""

    outcome: str
    reason: str = ""
    url: str = ""


@dataclass(frozen=True)
class Existing:
    """One comment of ours in the conversation."""

    comment: Comment
    marker: Marker


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The comment that this run wants: its marker, its whole text, and when to post it. `written`:
    what came of it so far, or empty."""

    marker: Marker
    text: str
    when: str
    verdict: str
    written: str = ""  # `created` or `updated`
    news: bool = True  # whether a pass says something that a reviewer does not expect


@dataclass(frozen=True)
class Action:
    """What to do next: end with `end`; or else make a new comment (`keep` is None), or put `text`
    into `keep` (None: it is right as it is), then delete `surplus`. `own`: the text is this
    run's."""

    end: Posted | None = None
    keep: int | None = None
    text: str | None = None
    own: bool = False
    surplus: tuple[int, ...] = ()


def post(
    api: Api,
    number: int,
    marker: Marker,
    body: Body,
    *,
    when: str,
    verdict: str,
    news: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> Posted:
    """Post `body` on pull request `number`. `body` gets the number of characters it may have and
    the marker of the run whose comment it replaces, None where there is none, and returns Markdown
    of at most that.

    `when` is one of settings.COMMENT_WHEN, but not `never`. Two of them say less of a passing
    verdict: `on-failure` makes no new comment for it, but brings one that is there up to date;
    `on-change` makes one only where it is `news`, and writes into one that is there where the
    marker's state is another, or the two intervals of the cost do not overlap. What GitHub refuses
    is an outcome with its reason, never an exception; `skipped` without a reason is what `when`
    asked for. Raises UsageError for a marker that cannot be written.
    """
    return _Upsert(api, number, marker, body).run(when, verdict, news, sleep)


def decide(desired: Desired, existing: Sequence[Existing], pull: PullRequest | None) -> Action:
    """The next action, from what was just read. `existing` holds all comments of ours under this
    key."""
    if pull is None:
        return Action(
            Posted("refused", "there is no such pull request, or the token may not read it")
        )
    late = _too_late(pull, desired.marker)
    if late and not desired.written:
        return Action(Posted("skipped", late))
    # after a write: GitHub's list is behind, or a person took the comment away at once
    if not existing:
        if desired.written:
            return Action(Posted(desired.written))
        unwanted = desired.verdict == "pass" and (
            desired.when == "on-failure" or (desired.when == "on-change" and not desired.news)
        )
        return Action(Posted("skipped")) if unwanted else Action(text=desired.text, own=True)
    ours = sorted(existing, key=lambda item: item.comment.id)
    keep, surplus = ours[0].comment, tuple(item.comment.id for item in ours[1:])
    newest = max(ours, key=lambda item: _rank(item.marker, pull))
    ahead = _rank(newest.marker, pull) > _rank(desired.marker, pull)
    own = not ahead and not late and _is_needed(desired, newest.marker)
    wanted = desired.text if own else newest.comment.body
    if not _same(keep.body, wanted):
        return Action(keep=keep.id, text=wanted, own=own, surplus=surplus)
    if surplus:
        return Action(keep=keep.id, surplus=surplus)
    if ahead:
        return Action(
            Posted("skipped", "a newer run has posted on this pull request already", keep.url)
        )
    return Action(Posted(desired.written or "unchanged", url=keep.url))


def _too_late(pull: PullRequest, marker: Marker) -> str:
    """Why this run has nothing to say any more; empty where it has."""
    if pull.head.sha != marker.head_sha:
        return (
            f"a newer commit is at the head: {pull.head.sha[:7]}, and this run tested "
            f"{marker.head_sha[:7]}"
        )
    return "" if pull.state == "open" else "the pull request is closed"


def _is_needed(desired: Desired, newest: Marker) -> bool:
    """Whether this run's text should replace that of `newest`, a run that is not newer."""
    # two jobs of one run under one key: the last to write stays, or they would write in turns
    if desired.written:
        own = desired.marker
        return (newest.run_id, newest.run_attempt, newest.head_sha) != (
            own.run_id,
            own.run_attempt,
            own.head_sha,
        )
    return (
        desired.when != "on-change"
        or desired.verdict != "pass"
        or newest.state != desired.marker.state
        or apart(desired.marker, newest)
    )


def _rank(marker: Marker, pull: PullRequest) -> tuple[bool, int, int]:
    """Which of two runs is newer: a run of the current head before all others, then by id, which
    grows, and attempt."""
    return marker.head_sha == pull.head.sha, marker.run_id, marker.run_attempt


def _earlier(existing: Sequence[Existing], own: Marker) -> Marker | None:
    """The newest marker that another run left; None where there is none."""
    others = [
        item.marker
        for item in existing
        if (item.marker.run_id, item.marker.run_attempt) < (own.run_id, own.run_attempt)
    ]
    return max(others, key=lambda marker: (marker.run_id, marker.run_attempt), default=None)


def _same(existing: str, wanted: str) -> bool:
    """Whether a text need not be written again. Line ends and blank ends may come back from GitHub
    in another form."""
    return (
        existing == wanted
        or existing.replace("\r\n", "\n").strip() == wanted.replace("\r\n", "\n").strip()
    )


class _Upsert:
    """One call of `post`: what is wanted, the token's own login, and what has been done so far."""

    def __init__(self, api: Api, number: int, marker: Marker, body: Body) -> None:
        self._api, self._number, self._marker, self._body = api, number, marker, body
        self._earlier: Marker | None = None
        self._room, self._text = LIMIT, ""
        self._identity = ACTIONS_BOT
        self._written, self._url = "", ""
        self._posts, self._uncertain = 0, False

    def run(self, when: str, verdict: str, news: bool, sleep: Callable[[float], None]) -> Posted:
        """Rounds until nothing is left to do."""
        marker_line(self._marker)  # before anything is asked
        try:
            self._identity = self._api.viewer() or ACTIONS_BOT
            for _ in range(ROUNDS):
                existing = self._existing()
                if not self._text:
                    self._earlier = _earlier(existing, self._marker)
                    self._render(LIMIT)
                desired = Desired(
                    marker=self._marker,
                    text=self._text,
                    when=when,
                    verdict=verdict,
                    written=self._written,
                    news=news,
                )
                action = decide(desired, existing, self._api.pull(self._number))
                if action.end is not None:
                    return (
                        action.end
                        if action.end.url or not self._written
                        else replace(action.end, url=self._url)
                    )
                self._act(action)
                sleep(SETTLE)
        except ApiError as error:
            if not self._written:
                return Posted(
                    "refused", f"{error.message}" + (f"; {error.remedy}" if error.remedy else "")
                )
        if self._written:  # it was posted; what could not be made sure of, the next run sets right
            return Posted(self._written, url=self._url)
        return Posted(
            "refused", "other runs, or people, kept changing the comment while this one wrote"
        )

    def _existing(self) -> list[Existing]:
        """All comments of ours under this key."""
        found = [
            (comment, read_marker(comment.body)) for comment in self._api.comments(self._number)
        ]
        ours = [
            Existing(comment, marker)
            for comment, marker in found
            if marker is not None
            and marker.key == self._marker.key
            and comment.author.lower() == self._identity.lower()
        ]
        if self._uncertain and any(item.marker == self._marker for item in ours):
            self._written = "created"  # GitHub made it after all
        self._uncertain = False
        return ours

    def _act(self, action: Action) -> None:
        if action.keep is None:
            self._create()
        elif self._update(action, action.keep):
            for surplus in action.surplus:
                self._api.delete_comment(surplus)

    def _create(self) -> None:
        self._posts += 1
        try:
            made = self._send(lambda text: self._api.create_comment(self._number, text))
        except Uncertain:
            if self._posts >= POSTS:
                raise
            self._uncertain = True
            return
        self._identity = made.author  # the one sure way to know who we are
        self._written, self._url = "created", made.url

    def _update(self, action: Action, kept: int) -> bool:
        """Write into the comment that is kept; False where it is gone, and everything must be read
        anew."""
        text = action.text
        if text is None:
            return True
        try:
            done = (
                self._send(lambda own: self._api.update_comment(kept, own))
                if action.own
                else self._api.update_comment(kept, text)
            )
        except ApiError as error:
            if error.status in {404, 410} and not error.read_only:
                return False
            raise
        if action.own:
            self._written, self._url = self._written or "updated", done.url
        return True

    def _send(self, write: Callable[[str], Comment]) -> Comment:
        """Write this run's text, in a shorter form for as long as GitHub finds it too long."""
        while True:
            try:
                return write(self._text)
            except ApiError as error:
                if (
                    error.status != 422
                    or "too long" not in error.message.lower()
                    or self._room // 2 < SHORTEST
                ):
                    raise
            self._render(self._room // 2)

    def _render(self, room: int) -> None:
        """The text in at most `room` characters, the marker's line among them."""
        line = marker_line(self._marker)
        self._room = room
        self._text = f"{line}\n{self._body(room - len(line) - 1, self._earlier)}"
