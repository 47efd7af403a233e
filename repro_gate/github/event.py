"""What GitHub sends: the types of webhook payloads and API answers, with bounds, and the one way to
decode them.

Names of branches, forks and workflows in it are untrusted. What is used is checked strictly; fields
that no type names may be anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, read_whole

# GitHub delivers no larger payload: docs.github.com, "Webhook events and payloads", Payload cap
MAX_BYTES = 25 * 1024 * 1024

_REPOSITORY = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*/(?!\.\.?\Z)[A-Za-z0-9_.-]+\Z"
# beyond it JSON numbers are no longer exact everywhere
Number = Annotated[int, Meta(ge=1, lt=2**53)]
# SHA-1 or SHA-256
Commit = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")]
RepositoryName = Annotated[str, Meta(pattern=_REPOSITORY, max_length=200)]
Ref = Annotated[str, Meta(max_length=1024)]
Word = Annotated[str, Meta(max_length=255)]
_Kind = TypeVar("_Kind")


class Repository(msgspec.Struct, frozen=True):
    """A repository."""

    full_name: RepositoryName


class Head(msgspec.Struct, frozen=True):
    """The branch that a pull request comes from. `repo` is None if the fork has been deleted."""

    ref: Ref
    sha: Commit
    repo: Repository | None


class Base(msgspec.Struct, frozen=True):
    """The branch that a pull request goes to."""

    repo: Repository


class PullRequest(msgspec.Struct, frozen=True):
    """One pull request, from an event or from the API."""

    number: Number
    state: Literal["open", "closed"]
    head: Head
    base: Base

    @property
    def head_repository(self) -> str | None:
        """Return the repository that its code comes from; None if the fork has been deleted."""
        return self.head.repo.full_name if self.head.repo else None

    @property
    def fork(self) -> bool:
        """Return whether its code comes from another repository, or from one that is gone."""
        return (
            self.head_repository is None
            or self.head_repository.lower() != self.base.repo.full_name.lower()
        )


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a `workflow_run` event names. All of it is untrusted."""

    id: Number
    attempt: Number = field(name="run_attempt")
    event: Word  # the event that started it: `pull_request`
    conclusion: Word | None = None  # None if it has not ended
    head_sha: Commit
    head_branch: Ref | None = None
    head_repository: Repository | None  # None if the fork has been deleted


class PullRequestEvent(msgspec.Struct, frozen=True):
    """`pull_request`, its reviews, and `pull_request_target`."""

    pull_request: PullRequest
    action: Word = ""


class WorkflowRunEvent(msgspec.Struct, frozen=True):
    """`workflow_run`."""

    workflow_run: WorkflowRun
    action: Word = ""


class Issue(msgspec.Struct, frozen=True):
    """What was commented on: a pull request if `pull_request` is there."""

    number: Number
    pull_request: dict[str, object] | None = None


class IssueCommentEvent(msgspec.Struct, frozen=True):
    """`issue_comment`."""

    issue: Issue


class Malformed(Exception):
    """JSON that is not as GitHub sends it. The message is one line, names the field and what was
    expected there."""


def decode(data: bytes, kind: type[_Kind]) -> _Kind:
    """Return `data` as a `kind`. Raises Malformed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"it is not JSON: {error}"
    except RecursionError:
        text = "it is nested too deeply"
    raise Malformed(for_terminal(text, 300))


def read_event(path: Path) -> bytes:
    """Return the payload at `path`; nothing if there is no such file. Raises UsageError for what is
    not a regular file or over MAX_BYTES."""
    if not path.exists():
        return b""
    try:
        return read_whole(path, MAX_BYTES)
    except Unreadable as error:
        raise _unusable(f"the file {os.fspath(path)} {error}") from None


def payload_of(data: bytes, event_name: str, kind: type[_Kind]) -> _Kind:
    """Return the payload of an event. Raises UsageError naming the field that is missing or not as
    GitHub sends it."""
    try:
        return decode(data, kind)
    except Malformed as error:
        raise _unusable(
            f"the payload of `{event_name}` is not as GitHub sends it: {error}"
        ) from None


def _unusable(why: str) -> UsageError:
    return UsageError(
        f"the event (GITHUB_EVENT_PATH): {for_terminal(why, 500)}",
        remedy="start the job anew; in a container of your own, mount the folder of the event's "
        "file into it",
        reason_id="action/event",
    )
