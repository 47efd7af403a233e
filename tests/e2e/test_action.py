"""The action's two halves as its composite steps start them, with real processes, against a GitHub
of our own: a pull request, a fork, what a training can see of the job around it, and what a hostile one
takes with it from a job of `native`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.composite import Job, steps
from tests.support.gates import LOOP, ROOT, environment, training, with_line
from tests.support.github.server import GitHub
from tests.support.github.stage import obeyed, pull_request, workflow_run
from tests.support.repositories import commit, git

TOKEN = "ghs_" + "S3cr3t" * 6
BROKEN = with_line("x = random.SystemRandom().random()")
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as GitHub unpacks an action, but with the gate's packages beside it: nothing
    has to be downloaded."""
    root = tmp_path_factory.mktemp("action")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith(("torch", "nvidia", "repro_gate")):
            (root / path.name).symlink_to(path)
    for name in ("repro_gate", "docs"):
        (root / name).symlink_to(ROOT / name)
    for name in ("native", "comment"):
        shutil.copytree(ROOT / name, root / name)
    (root / "requirements").mkdir()
    (root / "requirements/gate.lock").write_text("# nothing\n")
    return root


def job_of(folder: Path, root: Path, action: str, github: GitHub) -> Job:
    """A job of a push on a runner without a container, by a user who is not root to the files'
    modes."""
    told = environment(
        CI="true",
        GITHUB_REPOSITORY=github.repository,
        GITHUB_EVENT_NAME="push",
        GITHUB_REF="refs/heads/topic",
        GITHUB_RUN_ID="4711",
        GITHUB_RUN_ATTEMPT="1",
        GITHUB_SERVER_URL="https://github.com",
        GITHUB_API_URL=github.url,
        GITHUB_GRAPHQL_URL=github.graphql_url,
        GITHUB_WORKFLOW="gate",
        GITHUB_JOB=action,
    )
    start = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
    return Job(folder, told, root / action, start=start)


def check_out(job: Job, source: str) -> str:
    """A commit with this training; its hash."""
    workspace = training(job.folder / "workspace", source)
    git(workspace, "init", "-q")
    job.environment["GITHUB_SHA"] = commit(workspace)
    return job.environment["GITHUB_SHA"]


@dataclass
class Runner:
    """A self-hosted runner with one job of a pull request, and its GitHub."""

    github: GitHub
    job: Job
    token: str
    head: str = ""

    def check_out(self, source: str, fork: bool = False) -> None:
        """Check out the head of the pull request: a commit with this training."""
        self.head, ours = check_out(self.job, source), self.github.repository
        head = "stranger/trainer" if fork else ours
        self.github.add_pull(7, self.head, head_repository=head if fork else "")
        self.event("pull_request", pull_request(ours, fork=fork, sha=self.head))

    def event(self, name: str, payload: bytes) -> None:
        """What the job runs for."""
        (self.job.folder / "event.json").write_bytes(payload)
        self.job.environment["GITHUB_EVENT_NAME"] = name

    def step(self, phase: str, token: str | None = None, **inputs: str) -> Done:
        """One step."""
        inputs |= {"token": token} if token is not None else {}
        given = {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        script = {"run": f'exec "{sys.executable}" -m repro_gate.github {phase}'}
        return self.job.run_step(phase, script, {}, **given)

    @property
    def report(self) -> Path:
        return self.job.folder / "workspace/repro-gate-report"


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A runner with a pull request of a clean training."""
    with GitHub() as github:
        found = Runner(github, job_of(tmp_path / "runner", ROOT, "", github), github.token())
        more = {"PYTHONPATH": str(ROOT), "RUNNER_ENVIRONMENT": "self-hosted"}
        found.job.environment |= {**more, "GITHUB_REF": "refs/pull/7/merge"}
        found.check_out(LOOP)
        yield found
        assert github.faults == []


def test_a_pull_request_is_told_and_a_divergence_turns_it_red(runner: Runner) -> None:
    gated = runner.step("gate")
    assert gated.returncode == 0, gated.stderr
    # the half that runs untrusted code writes to nothing of the runner's
    assert runner.job.outputs["gate"] == {}
    told = runner.step("publish", runner.token, comment="always")  # a pass is silent by default
    assert told.returncode == 0, told.stdout
    assert (runner.report / "report.html").read_text().startswith("<!doctype html>")
    assert runner.job.outputs["publish"]["verdict"] == "pass"
    (comment,) = runner.github.comments(7)
    assert runner.head[:7] in comment["body"]
    # the report is there, and git does not see it
    assert git(runner.job.folder / "workspace", "status", "--porcelain") == ""

    runner.check_out(BROKEN)
    runner.job.environment["GITHUB_RUN_ID"] = "4712"
    told = runner.step("action", runner.token)
    assert told.returncode == 1 and "::error " in told.stdout, told.stdout + told.stderr
    (again,) = runner.github.comments(7)
    assert again["id"] == comment["id"]
    assert "fail" in again["body"] and runner.head[:7] in again["body"]
    assert "loss" in runner.job.command_file("action", "STEP_SUMMARY")


def test_a_training_sees_no_token_and_forges_no_command(runner: Runner) -> None:
    spy = """
import os
seen = [*os.environ.items()]
for pid in (os.getppid(), 1):
    try:
        seen.append((pid, open(f"/proc/{pid}/environ", "rb").read()))
    except OSError:
        pass
print("secrets seen:", repr(seen).count("S3cr3tS3cr3t"))
print("::error::forged by training")
print("##[add-path]/forged")
print("::stop-commands::forged")
assert "GITHUB_OUTPUT" not in os.environ and "GITHUB_ENV" not in os.environ
"""
    ends = "if number == 3: raise SystemExit('end ::error::forged at the end')"
    runner.check_out(spy + with_line(ends))
    told = runner.step("action", TOKEN, comment="never")
    assert told.returncode == 3, told.stdout + told.stderr  # it ends by an exception
    assert "secrets seen: 0" in told.stderr
    shown = [path.read_text() for path in runner.report.iterdir()]
    shown += [told.stdout, told.stderr, runner.job.command_file("action", "STEP_SUMMARY")]
    assert not [text for text in shown if TOKEN in text]
    own = ("::group::run", "::endgroup::", "::error ", "::warning ", "::notice ")
    lines = [*obeyed(told.stdout), *obeyed(told.stderr)]
    assert lines and [line for line in lines if not line.startswith(own)] == []


def test_nothing_of_a_fork_runs_on_a_self_hosted_runner(runner: Runner, tmp_path: Path) -> None:
    runner.check_out(f"open('{tmp_path / 'ran'}', 'w')\n" + LOOP, fork=True)
    told = runner.step("action", runner.token)
    assert told.returncode == 2
    assert "stranger/trainer" in told.stdout and "allow_forks" in told.stdout
    assert not (tmp_path / "ran").exists() and runner.github.comments(7) == []


def test_a_forks_report_is_posted_by_a_workflow_of_its_own(runner: Runner) -> None:
    runner.check_out(LOOP, fork=True)
    runner.job.environment["RUNNER_ENVIRONMENT"] = "github-hosted"
    told = runner.step("action", runner.github.token(write=False))
    assert told.returncode == 0, told.stdout + told.stderr
    assert runner.github.comments(7) == [] and runner.job.outputs["action"]["verdict"] == "pass"

    run = workflow_run(runner.github.repository, head_sha=runner.head)
    event = {"action": "completed", "workflow_run": run, "repository": run["repository"]}
    runner.event("workflow_run", json.dumps(event).encode())
    runner.job.environment |= {"GITHUB_RUN_ID": "4800", "GITHUB_SHA": "a" * 40}
    relayed = runner.step("comment", runner.token, comment="always")
    assert relayed.returncode == 0, relayed.stdout + relayed.stderr
    (comment,) = runner.github.comments(7)
    assert "actions/runs/4711" in comment["body"]

    report = runner.report / "report.json"
    forged = json.loads(report.read_text())
    forged["origin"]["run_id"] = 99
    report.write_text(json.dumps(forged))
    refused = runner.step("comment", runner.token)
    assert refused.returncode == 2 and "not of the run it came with" in refused.stdout
    assert "pass" not in runner.job.outputs["comment"].get("verdict", "")
    assert runner.github.comments(7) == [comment]


# Finds the file of the step's shell, as any process of the same user can, and makes it read-only.
# What stands in it meets each later step: bash then runs PS4 before each command, and a function in
# place of `exit`. As root, bash takes PS4 from nobody.
ATTACK = r"""
import glob, os
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        found = open(name, "rb").read().split(b"\0")
    except OSError:
        continue
    for item in found:
        path = item.removeprefix(b"GITHUB_ENV=")
        if path != item and path.startswith(b"{folder}/") and os.access(path, os.W_OK):
            with open(path, "w") as file:
                file.write("SHELLOPTS=xtrace\nPS4=$(cp /proc/self/environ {stolen}/ps4-$$)+ \n")
                file.write("BASH_FUNC_exit%%=() {{ cp /proc/self/environ {stolen}/exit-$$; builtin exit $1; }}\n")
            os.chmod(path, 0o400)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("setpriv"),
    reason="/proc, and setpriv of util-linux",
)
def test_a_training_that_takes_over_its_job_finds_no_token(root: Path, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    stolen.mkdir()
    with GitHub() as github:
        job = job_of(tmp_path / "runner", root, "native", github)
        check_out(job, ATTACK.format(folder=job.folder, stolen=stolen) + LOOP)
        for name in steps("native"):
            ended = job.run("native", name, {"python": sys.executable, "token": TOKEN})
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert job.outputs["gate"]["verdict"] == "pass" and github.requests == []
        assert list(stolen.iterdir()) == []
        job.run_step("later", {"run": "exit 0", "env": {"CANARY": "of a later step"}}, {})
    taken = "".join(path.read_text() for path in stolen.iterdir())
    assert "of a later step" in taken, "the attack itself works: put nothing behind `native`"
    assert TOKEN not in taken
