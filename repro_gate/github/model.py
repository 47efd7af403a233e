"""What the parts of this room hand each other: pull requests, comments, runs, and what is asked of the action. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

COMMENT_WHEN = ("always", "on-failure", "on-change", "never")
FAIL_ON = ("fail", "inconclusive")
COMMANDS = ("run", "comment")


class Secret:
    """A value that is never shown: no `str`, no `repr`, no traceback gives it away. `reveal()` is for the one header that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)


@dataclass(frozen=True)
class Inputs:
    """The action's inputs, cleaned: `with:` of the step, `INPUT_*` in its environment. The names are those of `action.yml`."""

    command: str = "run"  # one of COMMANDS
    spec: str = "repro.yml"  # relative to `working_directory`
    working_directory: str = "."  # relative to the workspace, inside it
    token: Secret | None = None
    comment: str = "always"  # one of COMMENT_WHEN
    fail_on: frozenset[str] = frozenset(FAIL_ON)  # the verdicts that turn the step red; empty for `never`
    report: str = "repro-gate-report"  # folder for report.json, report.md and report.sarif; with `command: comment`, what to read
    policy: str | None = None  # as `run --policy`
    base: str | None = None  # as `run --base`
    against: str | None = None  # as `run --against`
    overrides: tuple[str, ...] = ()  # input `set`: one `key=value` a line
    pull_request: int | None = None  # to comment on, where the event names none
    allow_forks: bool = False
    annotations: bool = True
    summary: bool = True
    cache: str | None = None  # folder that is kept between jobs: environments of `env.install`, digests of data


@dataclass(frozen=True)
class Job:
    """Where this job runs: the runner's own variables (`GITHUB_*`, `RUNNER_*`), cleaned."""

    repository: str  # owner/name
    event_name: str
    event_path: Path | None
    sha: str
    ref: str  # refs/heads/…, refs/pull/7/merge
    run_id: int
    run_attempt: int
    server_url: str
    api_url: str
    graphql_url: str
    workspace: Path
    self_hosted: bool  # whatever is not known to be GitHub's own runner
    output_file: Path | None = None  # GITHUB_OUTPUT
    summary_file: Path | None = None  # GITHUB_STEP_SUMMARY
    event: Mapping[str, object] | None = None  # the payload, parsed under limits

    @property
    def run_url(self) -> str:
        """The page of this workflow run."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


@dataclass(frozen=True)
class PullRequest:
    """One pull request, from an event or from the API. `head_repository` is None where the fork has been deleted."""

    number: int
    state: str  # `open` or `closed`
    head_sha: str
    head_ref: str
    head_repository: str | None
    base_repository: str
    base_ref: str
    draft: bool = False

    @property
    def fork(self) -> bool:
        """Whether its code comes from another repository, or from one that is gone."""
        return self.head_repository is None or self.head_repository.lower() != self.base_repository.lower()


@dataclass(frozen=True)
class WorkflowRun:
    """The run that a `workflow_run` event tells of. Everything but `repository` may have been chosen by a stranger."""

    id: int
    attempt: int
    name: str
    event: str  # the event that started it: `pull_request`
    status: str
    conclusion: str | None
    head_sha: str
    head_branch: str | None
    head_repository: str | None
    repository: str
    pull_requests: tuple[int, ...] = ()  # empty for forks


class Activity(Enum):
    """What an event asks of the action."""

    GATE = "gate"  # run the gate, then publish
    COMMENT = "comment"  # post the report of another run
    REFUSE = "refuse"  # do nothing, and say why; the step is red
    NOTHING = "nothing"  # do nothing, and say why; the step is green


@dataclass(frozen=True)
class Decision:
    """What is to be done for one event. `pull` is the pull request where the event has it, `find_by` says how to find it where not."""

    activity: Activity
    reason: str = ""  # a sentence for REFUSE and NOTHING
    remedy: str = ""
    pull: PullRequest | None = None
    find_by: str = ""  # ``: there is none; `number:7`: by its number; `commit:SHA`: an open pull request whose head this is
    tested_sha: str = ""  # the commit that this job tests, by its event; empty: whatever is checked out
    workflow_run: WorkflowRun | None = None


@dataclass(frozen=True)
class Comment:
    """One comment of a pull request's conversation."""

    id: int
    body: str
    author: str  # login, `[bot]` included
    url: str


@dataclass(frozen=True)
class Marker:
    """What the hidden first line of a comment says: whose it is (`key`, one for each spec and job), and of which run it tells."""

    key: str
    head_sha: str
    run_id: int
    run_attempt: int
    state: str  # digest of what `on-change` looks at: verdict, reasons, first divergence, lock status


@dataclass(frozen=True)
class Posted:
    """What came of a comment. `outcome`: `created`, `updated`, `unchanged`, `skipped` (with `reason`) or `refused` (a read-only token)."""

    outcome: str
    reason: str = ""
    url: str = ""
