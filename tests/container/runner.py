"""GitHub's runner: `lay_out` makes the folders that it has made before an action starts.

`start` starts the image with everything of the runner's mounted, as the runner starts a container
action (after `ContainerActionHandler.cs` of actions/runner): more than our action gives it, so the
training is tested where only the gate is in its way. Called by `door` and the tests of this folder.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.container.attacks import FILE_COMMANDS, SUFFIX, TOKEN
from tests.container.engine import Engine
from tests.support.composite import load, pairs
from tests.support.github.stage import pull_request
from tests.support.repositories import git

RUNNER = 1001  # the user of GitHub's own runners; the action is root
REPOSITORY, PULL, RUN_ID = "octo-org/trainer", 7, 4242
INPUTS: Mapping[str, str] = {  # what action.yml gives where the workflow says nothing
    **{name: str(item["default"]) for name, item in load("container")["inputs"].items()},
    "token": TOKEN,
    "comment": "always",
}
_VARIABLES = {
    "set_output": "GITHUB_OUTPUT",
    "step_summary": "GITHUB_STEP_SUMMARY",
    "set_env": "GITHUB_ENV",
    "add_path": "GITHUB_PATH",
    "save_state": "GITHUB_STATE",
}


@dataclass(frozen=True)
class Layout:
    """The runner's folders on this machine. `head` is the commit that is checked out."""

    root: Path
    head: str

    @property
    def workspace(self) -> Path:
        """The checkout."""
        return self.root / "workspace"

    @property
    def event(self) -> Path:
        """The event's payload."""
        return self.temporary / "_github_workflow/event.json"

    @property
    def temporary(self) -> Path:
        """RUNNER_TEMP on the host."""
        return self.root / "_temp"

    def command_file(self, name: str) -> Path:
        """One of the runner's file commands, such as `set_output`."""
        return self.temporary / "_runner_file_commands" / f"{name}_{SUFFIX}"


@dataclass(frozen=True)
class Ended:
    """What an action's step left: its exit code, its log as the runner reads it, what it wrote into
    the runner's files."""

    exit_code: int
    log: str
    outputs: Mapping[str, str]
    summary: str
    seconds: float
    layout: Layout = field(repr=False)

    @property
    def report(self) -> dict[str, Any]:
        """report.json, as a later step would upload it."""
        document: dict[str, Any] = json.loads(
            (self.layout.workspace / self.outputs["report"]).read_text(encoding="utf-8")
        )
        return document


def lay_out(root: Path, project: Mapping[str, str | Path]) -> Layout:
    """A checkout of `project` ({path: content, or a folder or file to copy}) and everything beside
    it, all the runner's user's."""
    workspace = root / "workspace"
    workspace.mkdir(parents=True)
    for name, content in project.items():
        target = workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.write_text(content, encoding="utf-8")
        elif content.is_dir():
            left_out = shutil.ignore_patterns("out", "__pycache__")
            shutil.copytree(content, target, dirs_exist_ok=True, ignore=left_out)
        else:
            shutil.copy(content, target)
    git(workspace, "init", "-q")
    git(workspace, "remote", "add", "origin", f"https://github.com/{REPOSITORY}")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "what is tested")
    layout = Layout(root, git(workspace, "rev-parse", "HEAD"))
    _credentials(layout)
    for name in ("_github_home", "_github_workflow", "_runner_file_commands"):
        (layout.temporary / name).mkdir()
    for name in FILE_COMMANDS:
        layout.command_file(name).touch()
    event = pull_request(REPOSITORY, fork=False, sha=layout.head)
    layout.event.write_bytes(event)
    if os.geteuid() == 0:
        for path in [root, *root.rglob("*")]:
            os.chown(path, RUNNER, RUNNER, follow_symlinks=False)
    return layout


def start(
    engine: Engine,
    image: str,
    layout: Layout,
    inputs: Mapping[str, str] | None = None,
    *,
    socket: Path | None = None,
    more: tuple[str, ...] = (),
    timeout: float = 900,
) -> Ended:
    """Gate and publish in one container and wait for its end. `socket` is the host's Docker socket,
    `more` further options of `run`."""
    name = f"repro-gate-action-{secrets.token_hex(3)}"
    given = {f"INPUT_{key.upper()}": value for key, value in {**INPUTS, **(inputs or {})}.items()}
    environment = {**given, **_in_container(layout, "https://api.github.com")}
    command = [*engine.run, "--name", name, "--workdir=/github/workspace", "--rm"]
    command.append("--network=none")
    command += [item for key in environment for item in ("-e", key)]
    command += ["-e", "GITHUB_ACTIONS=true", "-e", "CI=true"]
    command += [
        item for source, target in mounts(layout, socket) for item in ("-v", f"{source}:{target}")
    ]
    started = time.monotonic()
    with subprocess.Popen(
        [*command, *more, image],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            log, _ = process.communicate(timeout=timeout)
        finally:
            remove = [*engine.client, "rm", "--force", name]
            subprocess.run(remove, capture_output=True, timeout=60, check=False)
            process.kill()
    seconds = time.monotonic() - started
    return Ended(
        process.returncode,
        log.decode("utf-8", "replace"),
        pairs(layout.command_file("set_output").read_text(encoding="utf-8")),
        layout.command_file("step_summary").read_text(encoding="utf-8"),
        seconds,
        layout,
    )


def mounts(layout: Layout, socket: Path | None) -> Iterator[tuple[Path, str]]:
    """(host, container) of what the runner mounts, in its order."""
    if socket is not None:
        yield socket, "/var/run/docker.sock"
    yield layout.temporary, "/github/runner_temp"
    yield layout.temporary / "_github_home", "/github/home"
    yield layout.temporary / "_github_workflow", "/github/workflow"
    yield layout.temporary / "_runner_file_commands", "/github/file_commands"
    yield layout.workspace, "/github/workspace"


def state_of(folder: Path, without: tuple[str, ...] = ()) -> dict[str, tuple[int, int, int, bytes]]:
    """{path: (mode, user, group, content)} of everything in a folder, and of the folder itself."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        name = str(path.relative_to(folder))
        if name.split("/")[0] in without:
            continue
        state = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(state.st_mode) else b""
        if path.is_symlink():
            content = os.readlink(path).encode()
        found[name] = (state.st_mode, state.st_uid, state.st_gid, content)
    return found


def _credentials(layout: Layout) -> None:
    """The two places where actions/checkout has kept its token: the repository's configuration, and
    a file that this one includes."""
    layout.temporary.mkdir()
    header = f"AUTHORIZATION: basic {base64.b64encode(f'x-access-token:{TOKEN}'.encode()).decode()}"
    git(layout.workspace, "config", "http.https://github.com/.extraheader", header)
    apart = layout.temporary / f"git-credentials-{SUFFIX}.config"
    apart.write_text(f'[http "https://github.com/"]\n\textraheader = {header}\n', encoding="utf-8")
    included = "includeIf.gitdir:/github/workspace/.git.path"
    git(layout.workspace, "config", included, f"/github/runner_temp/{apart.name}")


def job_variables(layout: Layout, api_url: str) -> dict[str, str]:
    """What the runner tells every step of the job."""
    return {
        "CI": "true",
        "GITHUB_JOB": "gate",
        "GITHUB_REF": f"refs/pull/{PULL}/merge",
        "GITHUB_SHA": layout.head,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_REPOSITORY_OWNER": REPOSITORY.split("/", maxsplit=1)[0],
        "GITHUB_RUN_ID": str(RUN_ID),
        "GITHUB_RUN_NUMBER": "12",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_ACTOR": "octocat",
        "GITHUB_WORKFLOW": "gate",
        "GITHUB_HEAD_REF": "topic",
        "GITHUB_BASE_REF": "main",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_API_URL": api_url,
        "GITHUB_GRAPHQL_URL": f"{api_url}/graphql",
        "RUNNER_OS": "Linux",
        "RUNNER_ARCH": "X64",
        "RUNNER_NAME": "GitHub Actions 1",
        "RUNNER_ENVIRONMENT": "github-hosted",
        "RUNNER_TOOL_CACHE": "/opt/hostedtoolcache",
        "RUNNER_WORKSPACE": "/home/runner/work/trainer",
        "ACTIONS_RUNTIME_URL": "https://pipelines.actions.githubusercontent.com/abc/",
        "ACTIONS_RUNTIME_TOKEN": f"runtime-{TOKEN}",
        "ACTIONS_CACHE_URL": "https://artifactcache.actions.githubusercontent.com/abc/",
    }


def _in_container(layout: Layout, api_url: str) -> dict[str, str]:
    """The variables of a container action, with the paths of its mounts."""
    files = {
        variable: f"/github/file_commands/{name}_{SUFFIX}" for name, variable in _VARIABLES.items()
    }
    return {
        **job_variables(layout, api_url),
        "HOME": "/github/home",
        "GITHUB_WORKSPACE": "/github/workspace",
        "GITHUB_ACTION": "__repro-gate_repro-gate",
        "GITHUB_EVENT_PATH": "/github/workflow/event.json",
        **files,
        "RUNNER_TEMP": "/github/runner_temp",
    }
