"""What the parts of this room hand each other: pull requests, comments, runs, and what is asked of the action. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from repro_gate.github.event import PullRequest, WorkflowRun

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
    event: bytes | None = field(default=None, repr=False)  # the payload, of limited size

    @property
    def run_url(self) -> str:
        """The page of this workflow run."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


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
