"""The sticky comment: one for each marker's key and pull request, found again, written in place, and never moved back to an older run.

Called by `publish` and by `repro-gate comment`. GitHub has no compare-and-swap for comments, so `post` goes in rounds: look (all
comments, then the pull request's head, right before writing), decide (`decide`, a pure function), act, wait for `SETTLE`, and look again
until there is nothing left to do.

What that guarantees, with any number of runs at once: one comment is left, the one with the lowest id, and it tells of the newest run, as
long as no run takes longer than `SETTLE` from its look to the end of its write. A run that stalls for longer in just that place can put its
text over that of a newer run of the same head that has ended meanwhile; the next run sets it right. A run of an older head cannot, unless
the head moved while it stalled. Duplicates, whatever their cause, go with the next post.

A comment is ours by its marker and its author; one whose marker a person took out is theirs now, and is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from repro_gate.errors import UsageError
from repro_gate.github.client import Comment
from repro_gate.github.event import PullRequest
from repro_gate.github.marker import marker_line, read_marker
from repro_gate.github.model import COMMENT_WHEN, Marker, Posted
from repro_gate.github.retry import ApiError, Uncertain

LIMIT = 65_536  # characters of a comment; GitHub answers "Body is too long (maximum is 65536 characters)"
SHORTEST = 2_000  # below this no shorter form is asked for
SETTLE = 1.0  # seconds between a write and the look that makes sure of it
ROUNDS = 10  # looks at most; each but the first is one `SETTLE` later
POSTS = 3  # new comments at most, where GitHub did not say whether it made one
ACTIONS_BOT = "github-actions[bot]"  # whose comments those of GITHUB_TOKEN are


class Conversation(Protocol):
    """What `post` needs of GitHub. `client.Api` is one."""

    def viewer(self) -> str | None:
        """Login of the token's own identity, None where it cannot be told."""

    def pull(self, number: int, /) -> PullRequest | None:
        """The pull request as it is now, None where there is none."""

    def comments(self, number: int, /) -> Iterable[Comment]:
        """Its whole conversation."""

    def create_comment(self, number: int, body: str, /) -> Comment:
        """A new comment. Raises Uncertain where it may or may not have been made."""

    def update_comment(self, comment_id: int, body: str, /) -> Comment:
        """Another text for a comment."""

    def delete_comment(self, comment_id: int, /) -> None:
        """Take a comment away; one that is gone already is no error."""


@dataclass(frozen=True)
class Standing:
    """One comment of ours that stands in the conversation."""

    comment: Comment
    marker: Marker


@dataclass(frozen=True)
class Wish:
    """What this run has to say: its marker, its whole text, and when it is to be said. `written`: what came of it so far, or empty."""

    marker: Marker
    text: str
    when: str
    verdict: str
    written: str = ""  # `created` or `updated`


@dataclass(frozen=True)
class Step:
    """What to do next: end with `end`; or else make a new comment (`keep` is None), or put `text` into `keep` (None: it is right as it is),
    then delete `surplus`. `own`: the text is this run's."""

    end: Posted | None = None
    keep: int | None = None
    text: str | None = None
    own: bool = False
    surplus: tuple[int, ...] = ()


def post(
    api: Conversation,
    number: int,
    marker: Marker,
    body: Callable[[int], str],
    *,
    when: str,
    verdict: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Posted:
    """Say `body` in pull request `number`. `body` gets the number of characters it may have and returns Markdown of at most that.

    `when` is one of COMMENT_WHEN: `on-failure` makes no new comment for a passing verdict, but brings one that is there up to date;
    `on-change` writes where the marker's state is another than that of the comment there. What GitHub refuses is an outcome with its
    reason, never an exception; `skipped` without a reason is what `when` asked for. Raises UsageError for another `when`,
    and for a marker that cannot be written.
    """
    if when not in COMMENT_WHEN:
        raise UsageError(f"comment: {when!r} is not one of {', '.join(COMMENT_WHEN)}", remedy="comment: always")
    if when == "never":
        return Posted("skipped")
    return _Visit(api, number, marker, body, when, verdict).run(sleep)


def decide(wish: Wish, standing: Sequence[Standing], pull: PullRequest | None) -> Step:
    """The next step, from what was just seen. `standing` holds all comments of ours under this key."""
    if pull is None:
        return Step(Posted("refused", "there is no such pull request, or the token may not read it"))
    late = _too_late(pull, wish.marker)
    if late and not wish.written:
        return Step(Posted("skipped", late))
    if not standing:  # after a write: GitHub's list is behind, or a person took the comment away at once
        if wish.written:
            return Step(Posted(wish.written))
        return Step(Posted("skipped")) if wish.when == "on-failure" and wish.verdict == "pass" else Step(text=wish.text, own=True)
    ours = sorted(standing, key=lambda item: item.comment.id)
    keep, surplus = ours[0].comment, tuple(item.comment.id for item in ours[1:])
    newest = max(ours, key=lambda item: _rank(item.marker, pull))
    ahead = _rank(newest.marker, pull) > _rank(wish.marker, pull)
    own = not ahead and not late and _is_needed(wish, newest.marker)
    wanted = wish.text if own else newest.comment.body
    if not _same(keep.body, wanted):
        return Step(keep=keep.id, text=wanted, own=own, surplus=surplus)
    if surplus:
        return Step(keep=keep.id, surplus=surplus)
    if ahead:
        return Step(Posted("skipped", "a newer run has told of this pull request already", keep.url))
    return Step(Posted(wish.written or "unchanged", url=keep.url))


def _too_late(pull: PullRequest, marker: Marker) -> str:
    """Why this run has nothing to say any more; empty where it has."""
    if pull.head.sha != marker.head_sha:
        return f"a newer commit is at the head: {pull.head.sha[:7]}, and this run tested {marker.head_sha[:7]}"
    return "" if pull.state == "open" else "the pull request is closed"


def _is_needed(wish: Wish, newest: Marker) -> bool:
    """Whether this run's text should stand where `newest`, a run that is not newer, has the word."""
    if wish.written:  # two jobs of one run under one key: the last to write stays, or they would write in turns
        return (newest.run_id, newest.run_attempt, newest.head_sha) != (wish.marker.run_id, wish.marker.run_attempt, wish.marker.head_sha)
    return wish.when != "on-change" or newest.state != wish.marker.state


def _rank(marker: Marker, pull: PullRequest) -> tuple[bool, int, int]:
    """Which of two runs is newer: ids of runs grow, and what tells of the head goes before all else."""
    return marker.head_sha == pull.head.sha, marker.run_id, marker.run_attempt


def _same(standing: str, wanted: str) -> bool:
    """Whether a text need not be written again. Line ends and blank ends may come back from GitHub in another form."""
    return standing == wanted or standing.replace("\r\n", "\n").strip() == wanted.replace("\r\n", "\n").strip()


class _Visit:
    """One call of `post`: what is wanted, who we are, and what has been done so far."""

    def __init__(self, api: Conversation, number: int, marker: Marker, body: Callable[[int], str], when: str, verdict: str) -> None:
        self._api, self._number, self._marker, self._body = api, number, marker, body
        self._when, self._verdict = when, verdict
        self._room = LIMIT
        self._text = ""
        self._identity = ACTIONS_BOT
        self._written, self._url = "", ""
        self._posts, self._uncertain = 0, False

    def run(self, sleep: Callable[[float], None]) -> Posted:
        """Rounds until there is nothing left to do."""
        try:
            self._render(LIMIT)
            self._identity = self._api.viewer() or ACTIONS_BOT
            for _ in range(ROUNDS):
                ended = self._round()
                if ended is not None:
                    return ended if ended.url or not self._written else Posted(ended.outcome, ended.reason, self._url)
                sleep(SETTLE)
        except ApiError as error:
            if not self._written:
                return Posted("refused", f"{error.message}" + (f"; {error.remedy}" if error.remedy else ""))
        if self._written:  # it was said; what could not be made sure of, the next run sets right
            return Posted(self._written, url=self._url)
        return Posted("refused", "other runs, or people, kept changing the comment while this one wrote")

    def _round(self) -> Posted | None:
        """Look, decide, act. None: look again."""
        ours = [item for item in map(self._ours, self._api.comments(self._number)) if item is not None]
        if self._uncertain and any(item.marker == self._marker for item in ours):
            self._written = "created"  # GitHub made it after all
        self._uncertain = False
        wish = Wish(self._marker, self._text, self._when, self._verdict, self._written)
        step = decide(wish, ours, self._api.pull(self._number))
        if step.end is not None:
            return step.end
        if step.keep is None:
            self._create()
        elif self._put(step):
            for number in step.surplus:
                self._api.delete_comment(number)
        return None

    def _ours(self, comment: Comment) -> Standing | None:
        marker = read_marker(comment.body)
        if marker is None or marker.key != self._marker.key or comment.author.lower() != self._identity.lower():
            return None
        return Standing(comment, marker)

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

    def _put(self, step: Step) -> bool:
        """Write into the comment that is kept; False where it is gone, and everything must be looked at anew."""
        if step.text is None:
            return True
        kept, text = step.keep, step.text
        assert kept is not None  # `_round` has seen to it
        try:
            done = self._send(lambda own: self._api.update_comment(kept, own)) if step.own else self._api.update_comment(kept, text)
        except ApiError as error:
            if error.status in {404, 410} and not error.read_only:
                return False
            raise
        if step.own:
            self._written, self._url = self._written or "updated", done.url
        return True

    def _send(self, write: Callable[[str], Comment]) -> Comment:
        """Write this run's text, in a shorter form for as long as GitHub finds it too long."""
        while True:
            try:
                return write(self._text)
            except ApiError as error:
                if error.status != 422 or "too long" not in error.message.lower() or self._room // 2 < SHORTEST:
                    raise
            self._render(self._room // 2)

    def _render(self, room: int) -> None:
        """The text in at most `room` characters, the marker's line among them."""
        line = marker_line(self._marker)
        self._room = room
        self._text = f"{line}\n{self._body(room - len(line) - 1)}"
