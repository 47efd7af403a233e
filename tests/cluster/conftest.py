"""A Slurm of four nodes, which `make cluster` has brought up on this host, and what a gate run on it
may not leave: jobs, processes, files in its scratch folder.

Without it every test is skipped; under `make cluster` (REPRO_GATE_CLUSTER_TESTS=1) it is an error
instead. Tests of several files go on at once, so each asks for nodes by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from repro_gate.report.document import read_json
from tests.support.gates import LOOP, ROOT, Gated, command, environment, gate, training

AT = Path("/run/repro-gate-cluster")
CONF = AT / "slurm.conf"
# torchrun lies beside the interpreter of the tests
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
SLURM = {"SLURM_CONF": str(CONF), "PATH": PATH}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder carries the marker `cluster`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def slurm(*arguments: str, check: bool = True) -> str:
    """What one of Slurm's programs prints."""
    done = subprocess.run(
        arguments,
        env={**os.environ, **SLURM},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def until(holds: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"still {holds()!r} after {seconds:g} s"
        time.sleep(0.05)


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    if os.environ.get("REPRO_GATE_CLUSTER_TESTS") != "1":
        pytest.skip("no Slurm here: `make cluster` brings one up")
    assert slurm("sinfo", "--noheader", "--partition=train", "--format=%D") == "4"


@dataclass
class Site:
    """Where one test gates a training on some nodes."""

    place: Path
    scratch: Path

    def spec(self, run: str, **more: Any) -> str:
        """A spec of two plain runs, without the cost and without a diagnosis."""
        keys = {"steps": 4, "timeout": "1m", **more.pop("train", {})}
        # by which its processes are known, on every node
        keys["env"] = f"{{OMP_NUM_THREADS: '1', CLUSTER_TEST: '{self.place}'}}"
        lines = "".join(f"\n  {name}: {value}" for name, value in keys.items())
        rest = {"cost": "{measure: false}", "robustness": "{vary: false}", **more}
        return f"version: 1\ntrain:\n  run: {run}{lines}\n" + "".join(
            f"{name}: {value}\n" for name, value in rest.items()
        )

    def made(self, run: str, source: str = LOOP, **more: Any) -> Path:
        """The folder of a training that `run` starts."""
        return training(self.place / "code", source, self.spec(run, **more))

    def gate(self, run: str, source: str = LOOP, *arguments: str | Path, **more: Any) -> Gated:
        """Gate it, with the scratch folder of this test."""
        folder = self.made(run, source, **more)
        given = arguments or ("--scratch", self.scratch)
        return gate(folder, *given, out=self.place, **SLURM)

    def start(self, run: str, source: str, **more: Any) -> subprocess.Popen[str]:
        """Start a gate that is to be interrupted."""
        folder = self.made(run, source, **more)
        report = self.place / "report.json"
        return subprocess.Popen(
            command("run", folder, "--scratch", self.scratch, "--json", report),
            cwd=ROOT,
            env=environment(**SLURM),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read(self, code: int, out: str) -> Gated:
        """What a gate that was started gave."""
        report = self.place / "report.json"
        return Gated(code, read_json(report) if report.exists() else {}, out, "")

    def within(self, job: str, folder: Path) -> Gated:
        """Gate a folder inside a job."""
        given = "--scratch", self.scratch
        return gate(folder, *given, out=self.place, **SLURM, SLURM_JOB_ID=job)

    def queue(self) -> list[str]:
        """Its jobs, by the folder that they were submitted in."""
        jobs = slurm("squeue", "--noheader", "--format=%i %j %T %Z").splitlines()
        return [job for job in jobs if str(self.place) in job]

    def running(self) -> dict[int, str]:
        """What runs of its trainings, on whichever node: command lines by their ids."""
        mark = f"CLUSTER_TEST={self.place}".encode()
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    line = (place / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(place.name)] = line.decode()
        return found

    def processes(self) -> list[str]:
        """Their command lines."""
        return [*self.running().values()]

    def left(self) -> list[Any]:
        """What is left of it."""
        return [*filter(None, (self.queue(), self.processes()))]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """After the test nothing is left, neither on a node nor in the scratch folder."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = Site(tmp_path, scratch)
    yield found
    until(lambda: not found.left())
    assert [*scratch.iterdir()] == []
