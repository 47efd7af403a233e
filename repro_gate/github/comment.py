"""The sticky comment: one for each gate and pull request, found by the hidden marker in its first
line, updated in place by the newest run.

GitHub has no compare-and-swap for comments, so `post` goes in rounds: read all comments and the
pull request's head, decide (`decide`, a pure function), act (`_act`), wait for `SETTLE`, and read
again until nothing is left to do. With any number of runs at once, one comment is left, the one
with the lowest id, with the newest run's text, as long as no run takes longer than `SETTLE` from
its read to the end of its write. A run that stalls there can overwrite a newer run of the same
head; the next run corrects it. Duplicates go with the next post.

A comment is ours by its marker and its author: everybody who may comment can write a marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from repro_gate.errors import GateError
from repro_gate.github.client import Api, Comment
from repro_gate.github.event import PullRequest
from repro_gate.github.marker import Marker, costs_differ, marker_line, read_marker
from repro_gate.github.transport import ApiError, Uncertain

# characters of a comment; GitHub's own limit is 65,536
LIMIT = 65_000
SETTLE = 1.0  # seconds between a write and the look that makes sure of it
ROUNDS = 10  # looks at most; each but the first is one `SETTLE` later
POSTS = 3  # new comments whose answer never came: GitHub may have made each of them
ACTIONS_BOT = "github-actions[bot]"  # whose comments those of GITHUB_TOKEN are

# one comment of ours in the conversation
Existing = tuple[Comment, Marker]
# room in characters, and the marker of the comment that is replaced
Body = Callable[[int, Marker | None], str]


@dataclass(frozen=True)
class Posted:
    """What came of a comment. `outcome`: `created`, `updated`, `unchanged`, `skipped` (with
    `reason`) or `refused` (a read-only token)."""

    outcome: str
    reason: str = ""
    url: str = ""

    @classmethod
    def refused(cls, error: GateError) -> Posted:
        """Return the outcome that an error is: nobody refused if nobody made a mistake."""
        if not error.exit_code:
            return cls("skipped", error.message)
        return cls("refused", "; ".join(filter(None, (error.message, error.remedy))))


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The comment that this run wants, and what has come of it so far."""

    marker: Marker
    when: str  # as `post`
    news: bool = True  # whether a pass says something that a reviewer does not expect
    text: str = ""  # all of it, the marker's line too
    author: str = ACTIONS_BOT  # the token's login
    written: str = ""  # `created`, `updated`, or nothing yet
    url: str = ""  # of the comment that was written


@dataclass(frozen=True)
class Write:
    """What to do next: put `text` into the comment `keep` (None: into a new one; a text of None: it
    is right as it is), then delete `surplus`."""

    keep: int | None = None
    text: str | None = None
    surplus: tuple[int, ...] = ()


def post(
    api: Api,
    number: int,
    marker: Marker,
    body: Body,
    *,
    when: str,
    news: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> Posted:
    """Post `body` on pull request `number`. `body` gets the number of characters it may have and
    the marker of the run whose comment it replaces, None if there is none, and returns Markdown
    of at most that.

    `when` is one of settings.COMMENT_WHEN, but not `never`. Two of them say less of a passing
    verdict: `on-failure` makes no new comment for it, but brings an existing one up to date;
    `on-change` makes one only for `news`, and writes into an existing one if the marker's state is
    another, or the two intervals of the cost do not overlap. What GitHub refuses is an outcome with
    its reason, never an exception; `skipped` without a reason is what `when` asked for. Raises
    UsageError for a marker that cannot be written.
    """
    line = marker_line(marker)  # before anything is asked
    desired = Desired(marker=marker, when=when, news=news)
    unposted = Posted(
        "refused",
        "other runs, or people, kept changing the comment while this one wrote",
    )
    try:
        desired = replace(desired, author=api.viewer() or ACTIONS_BOT)
        lost = 0
        for _ in range(ROUNDS):
            existing = _existing(api, number, desired)
            if not desired.text:
                text = body(LIMIT - len(line) - 1, _earlier(existing, marker))
                desired = replace(desired, text=f"{line}\n{text}")
            step = decide(desired, existing, api.pull(number))
            if isinstance(step, Posted):
                return step
            try:
                desired = _act(api, number, step, desired)
            except Uncertain as error:  # the next look shows whether GitHub made it
                unposted = Posted.refused(error)
                lost += 1
            if lost == POSTS:
                break
            sleep(SETTLE)
    except ApiError as error:
        unposted = Posted.refused(error)
    # It was posted: what could not be made sure of, the next run sets right.
    return Posted(desired.written, url=desired.url) if desired.written else unposted


def _existing(api: Api, number: int, desired: Desired) -> list[Existing]:
    """Return all comments of the token's own identity under this key."""
    author = desired.author.lower()
    existing = []
    for comment in api.comments(number):
        marker = read_marker(comment.body)
        is_ours = marker and comment.author.lower() == author
        if marker and is_ours and marker.key == desired.marker.key:
            existing.append((comment, marker))
    return existing


def decide(
    desired: Desired, existing: Sequence[Existing], pull: PullRequest | None
) -> Posted | Write:
    """Return what to write next, or the end, from what was just read. `existing` holds all comments
    of ours under this key."""
    if pull is None:
        return Posted(
            "refused", "there is no such pull request, or the token may not read it"
        )
    late = _too_late(pull, desired.marker)
    if late and not desired.written:
        return Posted("skipped", late)
    if not existing:
        # after a write: GitHub's list is behind, or a person took the comment away at once
        if desired.written:
            return Posted(desired.written, url=desired.url)
        expected = {"on-failure": True, "on-change": not desired.news}
        quiet = expected.get(desired.when) and desired.marker.verdict == "pass"
        return Posted("skipped") if quiet else Write(text=desired.text)
    keep, *others = sorted((comment for comment, _ in existing), key=lambda one: one.id)
    comment, newest = max(existing, key=lambda item: _rank(item[1], pull))
    ahead = _rank(newest, pull) > _rank(desired.marker, pull)
    replaces = not ahead and not late and _is_needed(desired, newest)
    text = desired.text if replaces else comment.body
    stands = _same(keep.body, text)
    surplus = tuple(other.id for other in others)
    if surplus or not stands:
        return Write(keep.id, None if stands else text, surplus)
    if ahead:
        return Posted(
            "skipped", "a newer run has posted on this pull request already", keep.url
        )
    return Posted(desired.written or "unchanged", url=keep.url)


def _act(api: Api, number: int, step: Write, desired: Desired) -> Desired:
    """Do one step, and return what has come of the comment by it. Raises ApiError for a refusal
    that another look would not change."""
    try:
        if step.keep is None:
            made = api.create_comment(number, desired.text)
            # its author is the one sure way to know who we are
            return replace(desired, author=made.author, url=made.url, written="created")
        if step.text is not None:
            url = api.update_comment(step.keep, step.text).url
            if step.text == desired.text:
                written = desired.written or "updated"
                desired = replace(desired, url=url, written=written)
        for surplus in step.surplus:
            api.delete_comment(surplus)
    except ApiError as error:
        gone = error.status in {404, 410} and error.reason_id != "github/permission"
        if step.keep is None or not gone:
            raise
    return desired


def _too_late(pull: PullRequest, marker: Marker) -> str:
    """Return why this run has nothing to say any more; empty if it has."""
    if pull.head.sha != marker.head_sha:
        return (
            f"a newer commit is at the head: {pull.head.sha[:7]}, and this run tested "
            f"{marker.head_sha[:7]}"
        )
    return "" if pull.state == "open" else "the pull request is closed"


def _is_needed(desired: Desired, newest: Marker) -> bool:
    """Return whether this run's text should replace that of `newest`, a run that is not newer."""
    # two jobs of one run under one key: the last to write stays, or they would write in turns
    own = desired.marker
    if desired.written:
        return (*_run(newest), newest.head_sha) != (*_run(own), own.head_sha)
    return (
        desired.when != "on-change"
        or own.verdict != "pass"
        or newest.state != own.state
        or costs_differ(own, newest)
    )


def _run(marker: Marker) -> tuple[int, int]:
    """Return a run's id, which grows, and its attempt."""
    return marker.run_id, marker.run_attempt


def _rank(marker: Marker, pull: PullRequest) -> tuple[bool, tuple[int, int]]:
    """Return which of two runs is newer: a run of the current head before all others."""
    return marker.head_sha == pull.head.sha, _run(marker)


def _earlier(existing: Sequence[Existing], own: Marker) -> Marker | None:
    """Return the newest marker that another run left; None if there is none."""
    others = [marker for _, marker in existing if _run(marker) < _run(own)]
    return max(others, key=_run, default=None)


def _same(existing: str, text: str) -> bool:
    """Return whether a text need not be written again. Line ends and blank ends may come back from
    GitHub in another form."""
    one, other = (item.replace("\r\n", "\n").strip() for item in (existing, text))
    return one == other
