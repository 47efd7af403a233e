"""Starts the two arms of a measurement: a process as it is (bare), and the same one under the
probe. Used by every measurement that trains.

Both get the environment that the gate would pass on, the same command, and fresh places; the bare
one lacks nothing but the probe.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figure import ROOT
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.runs.arms import Arm
from repro_gate.runs.environment import training_environment
from repro_gate.runs.launch import Recording, RunRequest, RunResult, launch
from repro_gate.runs.workspaces import GateFolder, Workspace
from repro_gate.spec.model import Spec, Train
from repro_gate.trace.format import CONFIG_VARIABLE
from repro_gate.trace.model import Trace

# The interpreter that measures is the `python` of both arms.
OUTER = {
    **os.environ,
    "PATH": os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    ),
}
WORKLOADS = ROOT / "benchmarks" / "workloads"


class RunFailed(Exception):
    """One arm did not come to its end. The message holds the end of its output."""


@dataclass(frozen=True)
class Place:
    """Where both arms run: `root` holds `home`, `tmp`, `workspace` and one folder of traces for
    each probed run."""

    root: Path

    @property
    def workspace(self) -> Path:
        """The working directory of both arms."""
        return self.root / "workspace"


@contextlib.contextmanager
def open_place(source: Path) -> Iterator[Place]:
    """A temporary place with a copy of `source` as its workspace; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as name:
        place = Place(Path(name).resolve())
        for folder in ("home", "tmp"):
            (place.root / folder).mkdir()
        shutil.copytree(
            source, place.workspace, ignore=shutil.ignore_patterns("__pycache__", "out")
        )
        yield place


def run_bare(place: Place, command: str, condition: Arm) -> None:
    """Run a shell command under a condition's environment, without the probe. Raises RunFailed."""
    environment = training_environment(OUTER, condition, {}, place.root)
    del environment[CONFIG_VARIABLE], environment["PYTHONPATH"]
    environment["PATH"] = OUTER["PATH"]
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=place.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            raise RunFailed(
                f"{command}: exit status {done.returncode}\n"
                + output.read()[-4000:].decode("utf-8", "replace")
            )


def run_probed(
    place: Place,
    command: str,
    condition: Arm,
    name: str,
    *,
    keep_final: bool = False,
    reference: Sequence[Trace] = (),
    probe: Mapping[str, object] | None = None,
) -> RunResult:
    """Run the same command under the probe; `name` is the folder of its traces, `probe` more of its
    configuration. Raises RunFailed."""
    spec = Spec(path=place.root / "repro.yml", train=Train(run=command))
    folder = GateFolder(
        path=place.root,
        snapshot=Snapshot(root=place.workspace, source=place.workspace, files=0),
        outer=OUTER,
    )
    workspace = Workspace(
        place.workspace, place.workspace, place.root / "home", place.root / "tmp"
    )
    plan = RunRequest(
        name=name,
        arm=condition,
        recording=Recording(final=keep_final),
        reference=tuple(reference),
        probe=probe or {},
    )
    run = launch(spec, plan, folder, workspace)
    if not run.good:
        raise RunFailed(
            f"{command}: {run.outcome}: {run.problem}\n"
            + "\n".join(run.ended.tail[-40:])
        )
    return run
