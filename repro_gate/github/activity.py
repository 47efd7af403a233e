"""Decides what the action does for an event: `decide` and, for the action `comment`,
`decide_comment`, pure functions of inputs and job. They raise UsageError to refuse, NothingToDo if
nobody made a mistake.

The refusals protect a workflow that was not written for untrusted code. They cannot stop a fork's
pull request that changes the workflow itself: GitHub's setting "Approval for running fork pull
request workflows" decides who may start a workflow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import msgspec

from repro_gate.errors import GateError, UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import (
    IssueCommentEvent,
    PullRequest,
    PullRequestEvent,
    WorkflowRun,
    WorkflowRunEvent,
    payload_of,
)
from repro_gate.github.settings import Inputs, Job

# Pushed by a bot once a maintainer has read a fork's change: docs.gha-runners.nvidia.com,
# "copy-pr-bot".
_COPIED = re.compile(r"refs/heads/pull-request/([1-9][0-9]{0,8})", re.ASCII)
# conclusions of runs that hold no report
_NO_REPORT = ("skipped", "cancelled", "action_required", "stale", "startup_failure")


class NothingToDo(GateError):
    """There is nothing to gate or to post, and nobody made a mistake: the step succeeds."""

    exit_code = 0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do for one event. `pull` is the pull request if the event contains it; otherwise
    `find_by` is the way to find it."""

    pull: PullRequest | None = None
    # its number, or the commit that is an open pull request's head; None: there is none
    find_by: int | str | None = None
    # the commit that this job tests, by its event; empty: the one that is checked out
    tested_sha: str = ""
    workflow_run: WorkflowRun | None = None
    only_posts: bool = False  # the report of another job

    @property
    def foreign(self) -> bool:
        """Return whether untrusted code may have written the report: in another workflow run, or in
        a fork's pull request."""
        return bool(self.workflow_run or (self.pull and self.pull.fork))

    @property
    def by_training(self) -> bool:
        """Return whether the training may have written the report: another job made it, which in
        `native` trains as the gate's user, or untrusted code did."""
        return self.only_posts or self.foreign


def decide(inputs: Inputs, job: Job) -> Decision:
    """Return what to gate and where to comment. Raises UsageError if that is refused or the payload
    lacks a field that its event always has; NothingToDo if there is nothing to do."""
    match job.event_name:
        case (
            "pull_request"
            | "pull_request_review"
            | "pull_request_review_comment"
            | "pull_request_target"
        ):
            return _of_pull_request(inputs, job)
        case "issue_comment":
            return _of_comment(inputs, job)
        case "workflow_run":
            raise _refused(
                "`workflow_run` has the repository's secrets and a token that may write: code of "
                "the run that it names must not run next to them",
                "to post that run's report: `uses: repro-gate/repro-gate/comment`; to gate, do it "
                "in the workflow that this one waits for",
            )
        case "push":
            # who can push to this repository is trusted, on whatever runner
            copied = _COPIED.fullmatch(job.ref)
            branch = job.sha if job.ref.startswith("refs/heads/") else None
            find_by = inputs.pull_request or (int(copied[1]) if copied else branch)
            return Decision(find_by=find_by, tested_sha=job.sha)
    # merge queues, schedules, starts by hand and all others
    return Decision(find_by=inputs.pull_request)


def _refused(reason: str, remedy: str) -> UsageError:
    return UsageError(reason, remedy=remedy, reason_id="action/refuse")


def _nothing(reason: str) -> NothingToDo:
    return NothingToDo(reason, reason_id="action/nothing")


def _of_pull_request(inputs: Inputs, job: Job) -> Decision:
    """`pull_request` and its reviews: a fork's token is read-only. `pull_request_target`: secrets
    and a token that may write, always."""
    event = payload_of(job.event, job.event_name, PullRequestEvent)
    pull = event.pull_request
    target = job.event_name == "pull_request_target"
    if "closed" in (pull.state, event.action):
        raise _nothing(
            f"pull request {pull.number} is closed: there is nothing to gate"
        )
    if inputs.pull_request not in (None, pull.number):
        raise _refused(
            f"`pull_request: {inputs.pull_request}` is not the pull request of this event, which "
            f"is {pull.number}",
            "leave the input out: it is for events that name no pull request",
        )
    if not pull.fork or inputs.allow_forks or not (target or job.self_hosted):
        return Decision(pull=pull, tested_sha=pull.head.sha)
    if target:
        why = (
            "`pull_request_target` has the repository's secrets and a token that may write: "
            "untrusted code would run next to them"
        )
        remedy = (
            "gate in `on: pull_request` and post the report from a second workflow, `uses: "
            "repro-gate/repro-gate/comment`"
        )
        allowed = "with this job's rights"
    else:
        why = "this runner is self-hosted: untrusted code would run on this machine"
        remedy = (
            "gate forks on a runner of GitHub's, or copy the change to a branch "
            f"`pull-request/{pull.number}` of this repository once somebody has read it"
        )
        allowed = "on this machine"
    raise _refused(
        f"pull request {pull.number} is of {_as_code(pull.head_repository or 'a deleted fork')}, a "
        f"fork, and {why}",
        f'{remedy}; `with: {{allow_forks: "true"}}` lets whoever opens a pull request run code '
        f"{allowed}",
    )


def _of_comment(inputs: Inputs, job: Job) -> Decision:
    """`issue_comment`: the default branch's rights, and whatever code the job has checked out for
    somebody's comment."""
    issue = payload_of(job.event, job.event_name, IssueCommentEvent).issue
    if issue.pull_request is None:
        return Decision(find_by=inputs.pull_request)
    if not inputs.allow_forks:
        raise _refused(
            f"a comment on pull request {issue.number} started this job: it has the repository's "
            "secrets and a token that may write, and the code that it has checked out may be "
            "untrusted",
            'gate in `on: pull_request`; `with: {allow_forks: "true"}` lets the code of that pull '
            "request run with this job's rights",
        )
    return Decision(find_by=inputs.pull_request or issue.number)


def decide_comment(inputs: Inputs, job: Job) -> Decision:
    """Return what to post: the report of this workflow run, or in a `workflow_run` job that of the
    run that has ended. Its pull request is looked up at GitHub, never in the run's files. Raises as
    `decide` does."""
    if job.event_name != "workflow_run":
        # nothing of the pull request runs in this job
        inputs = msgspec.structs.replace(inputs, allow_forks=True)
        return replace(decide(inputs, job), only_posts=True)
    if inputs.pull_request is not None:
        raise _refused(
            f"`pull_request: {inputs.pull_request}` cannot be chosen here: a report is posted to "
            "the pull request of its own run",
            "leave the input `pull_request` out",
        )
    event = payload_of(job.event, job.event_name, WorkflowRunEvent)
    run = event.workflow_run
    if event.action != "completed":
        raise _nothing(f"run {run.id} has not ended yet, so there is no report")
    if run.event != "pull_request":
        raise _nothing(
            f"run {run.id} was started by {_as_code(run.event)}, not by a pull request, so there "
            "is nothing to comment on"
        )
    if run.conclusion is None or run.conclusion in _NO_REPORT:
        ending = _as_code(run.conclusion or "unknown")
        raise _nothing(f"run {run.id} ended as {ending}: it left no report")
    return Decision(tested_sha=run.head_sha, workflow_run=run, only_posts=True)


def _as_code(text: str) -> str:
    """Return untrusted text as code: a backtick would end it."""
    return f"`{for_terminal(text, 100).replace('`', '?')}`"
