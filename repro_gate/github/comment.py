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
SETTLE = 1.0  # seconds between a write and the read that verifies it
ROUNDS = 10  # the most reads; each but the first is one `SETTLE` later
POSTS = 3  # new comments whose answer never came: GitHub may have made each of them
ACTIONS_BOT = "github-actions[bot]"  # whose comments those of GITHUB_TOKEN are

# one comment of ours in the conversation
Existing = tuple[Comment, Marker]
# room in characters, and the marker of the comment that is replaced
Body = Callable[[int, Marker | None], str]


@dataclass(frozen=True)
class Posted:
    """The result of posting a comment. `outcome`: `created`, `updated`, `unchanged`, `skipped`
    (with `reason`) or `refused` (a read-only token)."""

    outcome: str
    reason: str = ""
    url: str = ""

    @classmethod
    def refused(cls, error: GateError) -> Posted:
        """Return the outcome for an error: `skipped` if nobody made a mistake, else `refused`."""
        if not error.exit_code:
            return cls("skipped", error.message)
        return cls("refused", "; ".join(filter(None, (error.message, error.remedy))))


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The comment that this run wants to post, and its state so far."""

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
        "other runs or people kept changing the comment while this run wrote it",
    )
    try:
        desired = replace(desired, author=api.viewer() or ACTIONS_BOT)
        lost = 0
        for _ in range(ROUNDS):
            existing = []
            for comment in api.comments(number):
                other = read_marker(comment.body)
                is_ours = comment.author.lower() == desired.author.lower()
                if other and is_ours and other.key == marker.key:
                    existing.append((comment, other))
            if not desired.text:
                earlier = [other for _, other in existing if other.run < marker.run]
                before = max(earlier, key=lambda other: other.run, default=None)
                text = body(LIMIT - len(line) - 1, before)
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
    # The comment was posted. If it could not be verified, the next run corrects it.
    return Posted(desired.written, url=desired.url) if desired.written else unposted


def decide(
    desired: Desired, existing: Sequence[Existing], pull: PullRequest | None
) -> Posted | Write:
    """Return what to write next, or the end, from what was just read. `existing` holds all comments
    of ours under this key."""
    own = desired.marker
    if pull is None:
        return Posted(
            "refused", "the pull request does not exist, or the token may not read it"
        )
    head = pull.head.sha
    late = "" if pull.state == "open" else "the pull request is closed"
    if head != own.head_sha:
        late = (
            f"a newer commit is at the head: {head[:7]}, and this run tested "
            f"{own.head_sha[:7]}"
        )
    if late and not desired.written:
        return Posted("skipped", late)
    if not existing:
        # After a write: GitHub's list is not up to date yet, or a person deleted the comment.
        if desired.written:
            return Posted(desired.written, url=desired.url)
        expected = {"on-failure": True, "on-change": not desired.news}
        quiet = expected.get(desired.when) and own.verdict == "pass"
        return Posted("skipped") if quiet else Write(text=desired.text)

    def rank(marker: Marker) -> tuple[bool, tuple[int, int]]:
        """Return which of two runs is newer: a run of the current head before all others."""
        return marker.head_sha == head, marker.run

    keep, *others = sorted((comment for comment, _ in existing), key=lambda one: one.id)
    comment, newest = max(existing, key=lambda item: rank(item[1]))
    ahead = rank(newest) > rank(own)
    # If two jobs of one run share a key, the last one's text is final, or they would overwrite each
    # other forever.
    is_needed = (
        rank(newest) != rank(own)
        if desired.written
        else (
            desired.when != "on-change"
            or own.verdict != "pass"
            or newest.state != own.state
            or costs_differ(own, newest)
        )
    )
    text = desired.text if is_needed and not ahead and not late else comment.body
    # GitHub may change line ends and trailing blanks.
    stands = keep.body.strip().splitlines() == text.strip().splitlines()
    surplus = tuple(other.id for other in others)
    if surplus or not stands:
        return Write(keep.id, None if stands else text, surplus)
    if ahead:
        return Posted(
            "skipped", "a newer run has already posted on this pull request", keep.url
        )
    return Posted(desired.written or "unchanged", url=keep.url)


def _act(api: Api, number: int, step: Write, desired: Desired) -> Desired:
    """Do one step, and return the comment's new state. Raises ApiError for a refusal that a retry
    would not change."""
    try:
        if step.keep is None:
            made = api.create_comment(number, desired.text)
            # The author of our own new comment is the only certain source of our login.
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
