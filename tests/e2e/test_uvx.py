"""`uvx repro-gate …`: the wheel from a package index, beside the environment that one trains in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from repro_gate import __version__
from repro_gate.report.document import load
from tests.support.wheels import index_of

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def test_init_and_run_work_beside_the_environment_that_one_trains_in(tmp_path: Path) -> None:
    index = tmp_path / "index/repro-gate"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*build, "--wheel-dir", index, ROOT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / "examples/quickstart/train.py", project)
    # a shell in which the training's environment is first on PATH, and not activated
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    with index_of(tmp_path / "index") as url:
        uvx = [find_uv_bin(), "tool", "run", "--index", url, f"repro-gate=={__version__}"]

        def run(*arguments: str) -> str:
            ended = subprocess.run(
                [*uvx, *arguments],
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if "No solution found" in ended.stderr or "Failed to fetch" in ended.stderr:
                pytest.skip(f"uv reaches no index with what the gate needs: {ended.stderr[-300:]}")
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout

        assert "wrote repro.yml for train.py" in run("init")
        run("run", "--quick", "--steps", "2", "--json", "report.json")
    report = load(project / "report.json")
    assert report.verdict == "pass" and "torch" in report.subject.versions
