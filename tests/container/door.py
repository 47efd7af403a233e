"""action.yml's own steps on a machine with the engine, as GitHub's runner starts them: `gate`,
`publish` where that ended well, and the last one in any case.

`docker` is the machine's engine with a script in front of it: that lets the containers with a
network share this machine's, where the tests' GitHub and package index listen, and takes away what
podman without control groups does not know.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.container.engine import Engine
from tests.container.image import Image
from tests.container.runner import INPUTS, Ended, Layout, job_variables
from tests.support.composite import ROOT, Job

STEPS = ("gate", "publish", "#3")


@dataclass(frozen=True)
class Door:
    """A runner's machine: the engine, and the images of the release."""

    engine: Engine
    image: Image

    def __post_init__(self) -> None:
        """Forget what earlier tests that were killed have left."""
        names = self.left().split()
        if names:
            self.engine.ask("volume", "rm", "--force", *names)

    def job(self, layout: Layout, api_url: str = "https://api.github.com") -> Job:
        """A job in the runner's folders."""
        bin_folder = layout.root / "bin"
        bin_folder.mkdir(exist_ok=True)
        program = bin_folder / "docker"
        program.write_text(_in_front_of(self.engine), encoding="utf-8")
        program.chmod(0o755)
        variables = {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            **job_variables(layout, api_url),
        }
        return Job(layout.root, variables, ROOT)

    def start(
        self,
        layout: Layout,
        inputs: Mapping[str, str] | None = None,
        *,
        api_url: str = "https://api.github.com",
        job: Job | None = None,
        **environment: str,
    ) -> Ended:
        """Run the action and return what it left. `environment` is that of the workflow."""
        job = job or self.job(layout, api_url)
        given = {**INPUTS, **(inputs or {})}
        images = {"GATE_IMAGE": self.image.gate, "CPU_IMAGE": self.image.name}
        started = time.monotonic()
        log, code, summary = "", 0, ""
        for step in STEPS:
            state = job.outputs.get("gate", {}).get("state")
            if (step == "publish" and code) or (step != "gate" and not state):
                continue
            own = {"RUNNER_TEMP": str(layout.temporary), "GITHUB_EVENT_PATH": str(layout.event)}
            done = job.run("container", step, given, **images, **own, **environment)
            log += done.stdout + done.stderr
            code = code or done.returncode
            summary += job.command_file(step, "STEP_SUMMARY")
        outputs = job.outputs.get("publish", {})
        return Ended(code, log, outputs, summary, time.monotonic() - started, layout)

    def left(self) -> str:
        """The containers and volumes of the action's that are there."""
        containers = self.engine.ask("ps", "--all", "--quiet", "--filter", "label=repro-gate")
        volumes = self.engine.ask("volume", "ls", "--quiet", "--filter", "name=repro-gate-")
        return containers + volumes


def _in_front_of(engine: Engine) -> str:
    """The script that the action's steps find as `docker`."""
    run = [item for item in engine.run if item not in ("--cap-add", "AUDIT_WRITE,MKNOD,NET_RAW")]
    return f"""#!/usr/bin/env bash
set -euo pipefail
if [ "$1" != run ]; then exec {shlex.join(engine.client)} "$@"; fi
shift
kept=() network=(--network host)
while [ $# -gt 0 ]; do
  case "$1" in
    --network) network=("$1" "$2"); shift ;;
    --pids-limit) {"shift" if engine.name == "podman" else 'kept+=("$1" "$2"); shift'} ;;
    *) kept+=("$1") ;;
  esac
  shift
done
exec {shlex.join(run)} "${{network[@]}}" "${{kept[@]}}"
"""
