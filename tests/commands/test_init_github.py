"""`repro-gate init --github`: the workflow that it writes is the one to copy, and every answer has its
place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate.cli import main
from repro_gate.commands import init_github
from tests.support.repositories import git
from tests.test_workflows_shipped import example

TORCH = "import torch\nfor step in range(3):\n    pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout on a machine without GPU and Slurm."""
    (tmp_path / "train.py").write_text(TORCH)
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", "git@github.com:lab/model.git")
    monkeypatch.setattr(init_github, "gpu_devices", lambda: ())
    monkeypatch.setattr(init_github, "which", lambda name: None)
    return tmp_path


def workflow(project: Path) -> dict[str, Any]:
    text = (project / init_github.PLACE).read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    found: dict[str, Any] = job
    return found


def test_without_anything_it_is_the_workflow_of_a_hosted_runner(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(project), "--github"]) == 0
    said = capsys.readouterr().out
    shown = example("pull-request.yml")["jobs"]["repro-gate"]
    made = workflow(project)
    assert (made["runs-on"], made["steps"]) == ("ubuntu-latest", shown["steps"])
    assert made["permissions"] == shown["permissions"]
    assert "https://github.com/lab/model/settings/branches" in said
    assert [line[:4] for line in said.splitlines()[-3:]] == ["  1.", "  2.", "  3."]
    checker = [f"{sys.prefix}/bin/check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
    command = [*checker, str(project / init_github.PLACE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_is_there_decides_and_a_spec_is_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = project / "repro.yml"
    spec.write_text("mine\n")
    monkeypatch.setattr(init_github, "gpu_devices", lambda: ("nvidia0",))
    (project / ".devcontainer").mkdir()
    container = project / ".devcontainer/devcontainer.json"
    container.write_text('{"image": "ghcr.io/lab/train:1"}')
    assert main(["init", str(project), "--github"]) == 0
    made = workflow(project)
    assert made["runs-on"] == ["self-hosted", "gpu"]
    assert made["steps"][-1]["with"] == {"policy": "base", "image": "ghcr.io/lab/train:1"}
    assert spec.read_text() == "mine\n"
    assert main(["init", str(project), "--github"]) == 2  # never over a workflow
    assert "already exists" in capsys.readouterr().err
    (project / init_github.PLACE).unlink()
    monkeypatch.setattr(init_github, "which", lambda name: "/usr/bin/sbatch")
    assert main(["init", str(project), "--github"]) == 0
    called = workflow(project)
    assert called["uses"] == example("slurm.yml")["jobs"]["repro-gate"]["uses"]
    assert called["with"] == {"runs-on": '["self-hosted", "slurm"]'}


@pytest.mark.parametrize("answer", ["ghcr.io/lab/other@sha256:12", "", "a b"])
def test_on_a_terminal_a_person_is_asked(
    answer: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "Dockerfile").write_text("FROM scratch\n")
    answers = iter(["self-hosted, a100", answer])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    code = main(["init", str(project), "--github"])
    assert code == (2 if answer == "a b" else 0)
    if code == 0:
        made = workflow(project)
        assert made["runs-on"] == ["self-hosted", "a100"]
        assert made["steps"][-1]["with"].get("image", "") == answer
