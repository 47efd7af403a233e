"""The fork-safe pair's second half: which pull request a report belongs to that another workflow
run uploaded.

That run executed untrusted code, so nothing in the report is believed: GitHub's `workflow_run`
event names the run, the report must name the same one, and the pull request is looked up from the
run. A report can neither choose a pull request nor pass for another run's, and what a reader may
copy into a shell is not its text.
"""

from __future__ import annotations

import re

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.activity import NothingToDo
from repro_gate.github.client import Api
from repro_gate.github.event import PullRequest, WorkflowRun
from repro_gate.report.model import Origin, Report

_PLAIN_PATH = re.compile(r"(?!.*\.\.)\w[\w./-]{0,199}", re.ASCII)


def find_pull(api: Api, run: WorkflowRun, repository: str) -> PullRequest:
    """Return the open pull request of `repository` whose head `run` tested. Raises NothingToDo
    if none is open or its head is newer, UsageError for whatever does not fit, and
    ApiError if GitHub does not answer."""
    if run.head_repository is None or not run.head_branch:
        raise UsageError(
            "the run names no head branch: the fork has been deleted",
            remedy="there is no pull request to be found; the report is in the run's summary",
            reason_id="workflow-run/no-pull-request",
        )
    # the event lists pull requests only for runs from the repository itself, and lies for others
    fork = run.head_repository.full_name
    owner = fork.partition("/")[0]
    pulls = [
        pull
        for pull in api.open_pulls(f"{owner}:{run.head_branch}")
        if pull.base.repo.full_name.lower() == repository.lower()
        and (pull.head_repository or "").lower() == fork.lower()
        and pull.head.ref == run.head_branch
    ]
    tested = [pull for pull in pulls if pull.head.sha == run.head_sha]
    if len(tested) == 1:
        return tested[0]
    head = for_terminal(f"{fork}:{run.head_branch} at {run.head_sha[:7]}", 250)
    if tested:
        raise UsageError(
            f"several pull requests have {head} as their head: "
            f"{', '.join(f'#{number}' for number in sorted(pull.number for pull in tested))}",
            remedy="GitHub does not say which of them the run was for: close all but one, or read "
            "the report in the run's summary",
            reason_id="workflow-run/several",
        )
    if pulls:
        raise NothingToDo(
            f"a newer commit is at the head of pull request #{pulls[0].number}: "
            f"{pulls[0].head.sha[:7]}, and the run tested {run.head_sha[:7]}",
            reason_id="workflow-run/newer-commit",
        )
    raise NothingToDo(
        f"no open pull request has {head} as its head",
        remedy="nothing to do if it was closed, or its branch or fork deleted, while the gate ran",
        reason_id="workflow-run/no-pull-request",
    )


def check(run: WorkflowRun, repository: str, origin: Origin | None) -> None:
    """Compare a report's origin with the run it came with, before anything of the report is shown.
    Asks nobody. Raises UsageError."""
    if origin is None:
        raise UsageError(
            "the report names no workflow run",
            remedy="make it with the action",
            reason_id="workflow-run/no-origin",
        )
    of_run = {
        "repository": (origin.repository.lower(), repository.lower()),
        "commit": (origin.head_sha, run.head_sha),
        "run": (origin.run_id, run.id),
        # an earlier attempt's report is the run's too: GitHub keeps it when other jobs run again
        "attempt": (origin.run_attempt, min(origin.run_attempt, run.attempt)),
    }
    for name, (of_report, expected) in of_run.items():
        if of_report != expected:
            raise UsageError(
                f"the report is not of the run it came with: its {name} is "
                f"{for_terminal(str(of_report), 100)}, the run's is {expected}",
                remedy="download the artifact of exactly this run: `run-id: ${{ "
                "github.event.workflow_run.id }}`",
                reason_id="workflow-run/origin",
            )


def see_again(report: Report) -> str:
    """Return the command that shows the finding of another job's report again, of nothing but spec,
    seed and steps: people copy it into a shell. Empty if the spec's name is not a plain path."""
    spec = report.subject.spec
    determinism = report.determinism
    if not _PLAIN_PATH.fullmatch(spec):
        return ""
    return " ".join(
        ["repro-gate run", spec, *(determinism.narrowed if determinism else ())]
    )
