"""One job of a pull request on a stage: workspace, the runner's files, a GitHub of our own. Used by
the tests of what is published."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from repro_gate.errors import GateError
from repro_gate.github.activity import Decision, decide, decide_comment
from repro_gate.github.publish_phase import publish_problem, publish_report, read_report
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import open_folder
from repro_gate.github.settings import Inputs, Job, Secret
from repro_gate.report.model import PLAIN, Origin, Report
from tests.support.composite import pairs
from tests.support.github.server import GitHub

HEAD = "0123456789abcdef0123456789abcdef01234567"
RUN = 4711
ORIGIN = Origin("octo-org/trainer", HEAD, RUN, 1, "repro-gate-report")


@dataclass
class Stage:
    """One job of a pull request: its workspace, the runner's files, and the GitHub that it talks
    to."""

    github: GitHub
    job: Job
    inputs: Inputs
    posting: bool = False  # the job is one of the action `comment`

    def publish(
        self, report: Report | GateError | None, known: Sequence[str] = ()
    ) -> tuple[int, str]:
        """Exit code and log of the second half, for what the first half left."""
        if report is not None:
            with open_folder(self.job.workspace, self.inputs.report) as folder:
                if isinstance(report, GateError):
                    folder.write_problem(report)
                else:
                    folder.write_report(redact(report), PLAIN)
        decision = self.decision
        outcome = read_report(self.inputs, self.job, decision, known)
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with redirect_stdout(out):
            if isinstance(outcome, GateError):
                code = publish_problem(outcome, self.inputs, self.job)
            else:
                code = publish_report(outcome, self.inputs, self.job, decision)
        out.seek(0)
        return code, out.read()

    def change(self, **changed: Any) -> None:
        of_job = {name: value for name, value in changed.items() if hasattr(self.job, name)}
        self.job = msgspec.structs.replace(self.job, **of_job)
        rest = {name: value for name, value in changed.items() if name not in of_job}
        self.inputs = msgspec.structs.replace(self.inputs, **rest)

    def may_not_write(self) -> None:
        self.change(token=Secret(self.github.token(write=False)))

    @property
    def posted(self) -> list[str]:
        return self.github.bodies(7)

    @property
    def decision(self) -> Decision:
        return (decide_comment if self.posting else decide)(self.inputs, self.job)

    @property
    def outputs(self) -> dict[str, str]:
        assert self.job.output_file is not None
        return pairs(self.job.output_file.read_text())

    @property
    def summary(self) -> str:
        assert self.job.summary_file is not None
        return self.job.summary_file.read_text()


@contextmanager
def staged(tmp_path: Path) -> Iterator[Stage]:
    """A pull request of the repository itself, with a token that may write, and each run
    commented."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name in ("output", "summary"):
        (tmp_path / name).touch()
    with GitHub() as github:
        github.add_pull(7, HEAD)
        job = Job(
            repository=github.repository,
            event_name="pull_request",
            event=pull_request(github.repository, fork=False),
            server_url="https://github.com",
            api_url=github.url,
            graphql_url=github.graphql_url,
            workflow="gate",
            name="repro-gate",
            sha="f" * 40,
            ref="refs/pull/7/merge",
            run_id=RUN,
            workspace=workspace,
            output_file=tmp_path / "output",
            summary_file=tmp_path / "summary",
        )
        yield Stage(github, job, Inputs(token=Secret(github.token()), comment="always"))
        assert github.faults == []


def pull_request(repository: str, *, fork: bool, sha: str = HEAD) -> bytes:
    """The event's payload, as far as anything reads it."""
    head = "stranger/trainer" if fork else repository
    pull = {
        "number": 7,
        "state": "open",
        "draft": False,
        "head": {"sha": sha, "ref": "topic", "repo": {"full_name": head}},
        "base": {"ref": "main", "repo": {"full_name": repository}},
    }
    payload = {"action": "synchronize", "number": 7, "pull_request": pull}
    return json.dumps(payload).encode()


def signed(report: Report, commit: str = HEAD, **origin: Any) -> Report:
    """A report of this run, or of what else is said."""
    of = replace(ORIGIN, **origin)
    return replace(report, origin=of, subject=replace(report.subject, commit=commit))


def as_workflow_run(stage: Stage, **changes: object) -> None:
    """From here on the job is the second of the fork-safe pair, for the run that ORIGIN names."""
    stage.github.change_pull(7, head_repository="stranger/trainer")
    run = workflow_run(stage.github.repository, **changes)
    event = json.dumps({"action": "completed", "workflow_run": run}).encode()
    stage.change(event_name="workflow_run", run_id=4800, event=event)
    stage.posting = True


def workflow_run(repository: str, **changes: object) -> dict[str, object]:
    """The run of a fork's pull request that ORIGIN names, as an event of `workflow_run` has it."""
    run = {"id": RUN, "run_attempt": 1, "name": "gate", "event": "pull_request"}
    run |= {"head_sha": HEAD, "head_branch": "topic", "pull_requests": []}
    run |= {"head_repository": {"full_name": "stranger/trainer"}}
    run |= {"repository": {"full_name": repository}, "status": "completed"}
    return {**run, "conclusion": "success", **changes}


def obeyed(text: str) -> list[str]:
    """The workflow commands that GitHub's runner would obey in a log."""
    found, stopped = [], ""
    for line in text.splitlines():
        if stopped:
            stopped = "" if line.strip() == f"::{stopped}::" else stopped
        elif line.startswith("::stop-commands::"):
            stopped = line.removeprefix("::stop-commands::")
        elif line.lstrip().startswith("::") or "##[" in line:
            found.append(line)
    return found
