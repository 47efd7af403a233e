"""The fork-safe pair's second half: which pull request a report belongs to that another workflow
run uploaded.

That run executed untrusted code, so nothing in the report is believed: GitHub's `workflow_run`
event names the run, the report must name the same one, and the pull request is looked up from the
run. A report can neither choose a pull request nor pass for another run's, and what a reader may
copy into a shell is not its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.client import Api
from repro_gate.github.event import PullRequest, WorkflowRun
from repro_gate.report.model import Origin, Report

_PLAIN_PATH = re.compile(r"(?!.*\.\.)\w[\w./-]{0,199}", re.ASCII)


class NothingToPost(UsageError):
    """The report is right, but its pull request was closed or has a newer commit. Nobody made a
    mistake."""


def find_pull(api: Api, run: WorkflowRun, repository: str) -> PullRequest:
    """Return the open pull request of `repository` whose head `run` tested. Raises NothingToPost
    where that pull request is closed or has a newer head, UsageError for whatever does not fit, and
    ApiError where GitHub does not answer."""
    found = {pull.number: pull for pull in _candidates(api, run, repository)}
    of_head = [pull for pull in found.values() if pull.head.sha == run.head_sha]
    still_open = sorted(
        (pull for pull in of_head if pull.state == "open"), key=lambda pull: pull.number
    )
    head = f"{_shown(run.head_repository)}:{_shown(run.head_branch)} at {run.head_sha[:7]}"
    if len(still_open) > 1:
        raise UsageError(
            f"several pull requests have {head} as their head: "
            f"{', '.join(f'#{pull.number}' for pull in still_open)}",
            remedy="GitHub does not say which of them the run was for: close all but one, or read "
            "the report in the run's summary",
            reason_id="workflow-run/several",
        )
    if still_open:
        return still_open[0]
    if of_head:
        raise NothingToPost(
            f"pull request #{of_head[0].number} was closed meanwhile",
            reason_id="workflow-run/closed",
        )
    if found:
        number, pull = min(found.items())
        raise NothingToPost(
            f"a newer commit is at the head of pull request #{number}: {pull.head.sha[:7]}, and "
            f"the run tested {run.head_sha[:7]}",
            reason_id="workflow-run/newer-commit",
        )
    # GitHub lists a fork's pull requests only while they are open, so a closed one looks the same
    raise NothingToPost(
        f"no open pull request has {head} as its head",
        remedy="nothing to do where it was closed, or its branch or fork deleted, while the gate "
        "ran",
        reason_id="workflow-run/no-pull-request",
    )


def check(run: WorkflowRun, repository: str, origin: Origin | None) -> None:
    """Compare a report's origin with the run it came with, before anything of the report is shown.
    Asks nobody. Raises UsageError. That the run is of a pull request and has ended is for
    `decide_comment` to see."""
    if origin is None:
        remedy = "make it with the action"
        raise UsageError(
            "the report names no workflow run", remedy=remedy, reason_id="workflow-run/no-origin"
        )
    for name, found, right, fits in (
        ("repository", origin.repository, repository, _same_name(origin.repository, repository)),
        ("commit", origin.head_sha, run.head_sha, origin.head_sha == run.head_sha),
        ("run", str(origin.run_id), str(run.id), origin.run_id == run.id),
        # An earlier attempt's report is the run's too: GitHub keeps it when other jobs run again.
        (
            "attempt",
            str(origin.run_attempt),
            f"{run.attempt} at most",
            1 <= origin.run_attempt <= run.attempt,
        ),
    ):
        if not fits:
            raise UsageError(
                f"the report is not of the run it came with: its {name} is {_shown(found)}, the "
                f"run's is {_shown(right)}",
                remedy="download the artifact of exactly this run: `run-id: ${{ "
                "github.event.workflow_run.id }}`",
                reason_id="workflow-run/origin",
            )


def see_again(report: Report) -> str:
    """Return the command that shows the finding of a foreign report again, of nothing but spec,
    seed and steps: people copy it into a shell. Empty where the spec's name is not a plain path."""
    if not _PLAIN_PATH.fullmatch(report.subject.spec):
        return ""
    found = report.determinism
    return " ".join(["repro-gate run", report.subject.spec, *(found.narrowed if found else ())])


def _candidates(api: Api, run: WorkflowRun, repository: str) -> Iterable[PullRequest]:
    """Pull requests of ours from the run's branch, whatever commit is at their head now.

    The event lists pull requests only for runs from the repository itself, so a fork's is found by
    its branch. Both ways end in the same test, because the event's list may hold a number of
    another repository.
    """
    if run.head_repository is None or not run.head_branch:
        raise UsageError(
            "the run names no head branch: the fork has been deleted",
            remedy="there is no pull request to be found; the report is in the run's summary",
            reason_id="workflow-run/no-pull-request",
        )
    found = list(api.open_pulls(f"{run.head_repository.partition('/')[0]}:{run.head_branch}"))
    if _same_name(run.head_repository, repository):
        known = {pull.number for pull in found}
        asked = (
            api.pull(number) for number in dict.fromkeys(run.pull_requests) if number not in known
        )
        found += [pull for pull in asked if pull is not None]
    return [
        pull
        for pull in found
        if _same_name(pull.base.repo.full_name, repository)
        and pull.head_repository is not None
        and _same_name(pull.head_repository, run.head_repository)
        and pull.head.ref == run.head_branch
    ]


def _same_name(one: str, other: str) -> bool:
    """Whether two `owner/name` are one repository: GitHub's names are ASCII and do not tell case
    apart."""
    return one.isascii() and one.lower() == other.lower()


def _shown(text: str | None) -> str:
    return for_terminal(text or "", 100)
