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

# characters of a comment; GitHub's own limit is 65,536
LIMIT = 65_000
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
    when: str
    verdict: str
    news: bool = True  # whether a pass says something that a reviewer does not expect
    text: str = ""
    written: str = ""  # `created` or `updated`


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
    line = marker_line(marker)  # before anything is asked
    desired = Desired(marker=marker, when=when, verdict=verdict, news=news)
    posts, uncertain, url = 0, False, ""
    try:
        identity = api.viewer() or ACTIONS_BOT
        for _ in range(ROUNDS):
            existing = _existing(api, number, marker.key, identity)
            if uncertain and any(item.marker == marker for item in existing):
                desired = replace(desired, written="created")  # GitHub made it after all
            uncertain = False
            if not desired.text:
                text = body(LIMIT - len(line) - 1, _earlier(existing, marker))
                desired = replace(desired, text=f"{line}\n{text}")
            action = decide(desired, existing, api.pull(number))
            if action.end is not None:
                return replace(action.end, url=action.end.url or url)
            try:
                if action.keep is None:
                    posts += 1
                    done = api.create_comment(number, desired.text)
                    identity, url = done.author, done.url  # the one sure way to know who we are
                    desired = replace(desired, written="created")
                elif action.text is not None:
                    done = api.update_comment(action.keep, action.text)
                    if action.own:
                        url = done.url
                        desired = replace(desired, written=desired.written or "updated")
                for surplus in action.surplus:
                    api.delete_comment(surplus)
            except Uncertain:
                if posts >= POSTS:
                    raise
                uncertain = True
            except ApiError as error:
                if error.status not in {404, 410} or error.read_only or action.keep is None:
                    raise
                # it is gone: read everything anew
            sleep(SETTLE)
    except ApiError as error:
        if not desired.written:
            return Posted("refused", "; ".join(filter(None, (error.message, error.remedy))))
    if desired.written:  # it was posted; what could not be made sure of, the next run sets right
        return Posted(desired.written, url=url)
    return Posted(
        "refused", "other runs, or people, kept changing the comment while this one wrote"
    )


def _existing(api: Api, number: int, key: str, identity: str) -> list[Existing]:
    """Return all comments of ours under this key."""
    found = ((comment, read_marker(comment.body)) for comment in api.comments(number))
    return [
        Existing(comment, marker)
        for comment, marker in found
        if marker is not None and marker.key == key and comment.author.lower() == identity.lower()
    ]


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
        return _run(newest) != _run(desired.marker) or newest.head_sha != desired.marker.head_sha
    return (
        desired.when != "on-change"
        or desired.verdict != "pass"
        or newest.state != desired.marker.state
        or apart(desired.marker, newest)
    )


def _run(marker: Marker) -> tuple[int, int]:
    """Return a run's id, which grows, and its attempt."""
    return marker.run_id, marker.run_attempt


def _rank(marker: Marker, pull: PullRequest) -> tuple[bool, tuple[int, int]]:
    """Return which of two runs is newer: a run of the current head before all others."""
    return marker.head_sha == pull.head.sha, _run(marker)


def _earlier(existing: Sequence[Existing], own: Marker) -> Marker | None:
    """Return the newest marker that another run left; None where there is none."""
    others = [item.marker for item in existing if _run(item.marker) < _run(own)]
    return max(others, key=_run, default=None)


def _same(existing: str, wanted: str) -> bool:
    """Return whether a text need not be written again. Line ends and blank ends may come back from
    GitHub in another form."""
    one, other = (text.replace("\r\n", "\n").strip() for text in (existing, wanted))
    return one == other
