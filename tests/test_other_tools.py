"""What works beside GitHub: the pre-commit hook under pre-commit itself, the GitLab job, and the
page that tells of them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate import __version__
from repro_gate.commands.arguments import parser
from tests.support.composite import ROOT
from tests.support.gates import environment

HOOK: dict[str, Any] = yaml.safe_load(
    (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
)[0]
GITLAB = ROOT / "examples/gitlab/.gitlab-ci.yml"
JOB: dict[str, Any] = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["repro-gate"]
PAGE = (ROOT / "docs/other-tools.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one data file, its checksum in repro.yml, and the hook installed as git's
    own."""
    folder = tmp_path / "checkout"
    (folder / "data").mkdir(parents=True)
    (folder / "data/x.bin").write_bytes(b"one")
    (folder / "train.py").write_text("import torch\n")
    data = [{"path": "data/x.bin", "sha256": hashlib.sha256(b"one").hexdigest()}]
    spec = {"version": 1, "train": {"run": "python train.py"}, "data": data}
    (folder / "repro.yml").write_text(json.dumps(spec))
    # As pre-commit runs it, but with the `repro-gate` that is installed here: nothing is fetched.
    hooks = {"repos": [{"repo": "local", "hooks": [{**HOOK, "language": "system"}]}]}
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(hooks))
    git(folder, "init", "--quiet", ".")
    done = _run(folder, sys.executable, "-m", "pre_commit", "install")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(folder, "git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments)


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    more = environment(
        PRE_COMMIT_HOME=str(folder.parent / "pre-commit"),
        HOME=str(folder.parent),
        GIT_CONFIG_NOSYSTEM="1",
    )
    return subprocess.run(
        command, cwd=folder, env=more, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_hook_lets_a_good_commit_through_and_stops_bad_ones(checkout: Path) -> None:
    def commit(name: str, message: str, text: str) -> tuple[int, str]:
        (checkout / name).write_text(text)
        git(checkout, "add", "--all")
        done = git(checkout, "commit", "--message", message)
        return done.returncode, done.stderr + done.stdout

    code, printed = commit("data/x.bin", "good", "one")
    assert code == 0 and re.search(r"^repro-gate check\.+Passed$", printed, re.MULTILINE), printed
    code, printed = commit("data/x.bin", "bad", "two")
    assert code == 1 and "fail data/checksums" in printed, printed
    code, printed = commit("repro.yml", "worse", "version: 1\ntrain: {rum: python train.py}\n")
    assert code == 1 and "exit code: 2" in printed and "repro.yml:2:9: train.rum" in printed
    assert "Traceback" not in printed and git(checkout, "log", "--format=%s").stdout == "good\n"


def test_the_hook_needs_no_file_names_runs_one_of_our_commands_and_stands_on_the_page() -> None:
    # pre-commit installs this repository by itself
    assert HOOK["id"] == "repro-gate-check" and HOOK["language"] == "python"
    assert HOOK["always_run"] and not HOOK["pass_filenames"]
    program, *arguments = HOOK["entry"].split()
    assert program == "repro-gate" and parser().parse_args(arguments).command == "check"
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (shown,) = yaml.safe_load(block)["repos"]
    assert shown["hooks"] == [{"id": HOOK["id"]}] and shown["rev"] == f"v{__version__}"


def _arguments(tmp_path: Path, **variables: str) -> list[str]:
    """What the job's script starts, under GitLab's shell settings: the image's interpreter is one
    that writes down its arguments."""
    fake, written, lines = tmp_path / "python", tmp_path / "arguments", JOB["script"]
    fake.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >{written}\n')
    fake.chmod(0o755)
    assert all(
        line.count("/opt/repro-gate/bin/python") == line.startswith("/opt") for line in lines
    )
    script = "set -eu\n" + "\n".join(lines).replace("/opt/repro-gate/bin/python", str(fake))
    path = {"PATH": environment()["PATH"], **variables}
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=path, check=True, timeout=60)
    assert (tmp_path / "repro-gate-report/.gitignore").read_text() == "*\n"
    return written.read_text().split("\0")[:-1]


@pytest.mark.parametrize("base", ["", "0123456789abcdef0123456789abcdef01234567"])
def test_the_gitlab_job_gates_in_the_image_and_keeps_the_reports(tmp_path: Path, base: str) -> None:
    variables = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base} if base else {}
    isolated, module, name, *arguments = _arguments(tmp_path, **variables)
    assert (isolated, module, name) == ("-I", "-m", "repro_gate")
    options = parser().parse_args(arguments)
    assert (options.command, options.spec, options.base) == ("run", "repro.yml", base or None)
    files = [word for word in arguments if word.startswith("repro-gate-report/")]
    assert files == [f"repro-gate-report/report.{kind}" for kind in ("json", "html", "xml")]
    kept = JOB["artifacts"]
    assert (kept["when"], kept["paths"]) == ("always", ["repro-gate-report/"])
    assert kept["reports"] == {"junit": "repro-gate-report/report.xml"}
    assert JOB["image"]["name"] == f"ghcr.io/repro-gate/repro-gate:{__version__}"
    assert JOB["image"]["entrypoint"] == [""]
    gate = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY --from=gate-folder /opt/repro-gate/ /opt/repro-gate/" in gate
    assert "REPRO_GATE_SANDBOX=own-user" in gate
