"""Pull requests, comments and runs as the client and the events give them, made from a few
words."""

from __future__ import annotations

from repro_gate.github.client import Account, Comment
from repro_gate.github.event import Base, Head, PullRequest, Repository, WorkflowRun


def a_pull(
    number: int,
    sha: str,
    head: str | None,
    base: str,
    *,
    ref: str = "topic",
    base_ref: str = "main",
    draft: bool = False,
) -> PullRequest:
    """An open pull request from the repository `head` (None: deleted) to `base`."""
    return PullRequest(
        number,
        "open",
        Head(ref, sha, None if head is None else Repository(head)),
        Base(base_ref, Repository(base)),
        draft,
    )


def plain(pull: PullRequest | None) -> PullRequest | None:
    """`pull` without the numbers of its repositories, which no expectation names."""
    if pull is None:
        return None
    return a_pull(
        pull.number,
        pull.head.sha,
        pull.head_repository,
        pull.base.repo.full_name,
        ref=pull.head.ref,
        base_ref=pull.base.ref,
        draft=pull.draft,
    )


def a_comment(number: int, body: str, author: str, url: str) -> Comment:
    return Comment(number, url, body, Account(author))


def a_run(
    sha: str,
    head: str | None,
    repository: str,
    *,
    branch: str | None = "topic",
    event: str = "pull_request",
    status: str = "completed",
) -> WorkflowRun:
    """Run 4711, attempt 2, of the repository `head`."""
    return WorkflowRun(
        id=4711,
        attempt=2,
        event=event,
        status=status,
        conclusion="failure",
        head_sha=sha,
        head_branch=branch,
        head_repo=None if head is None else Repository(head),
        repo=Repository(repository),
    )
