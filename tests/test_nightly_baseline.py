"""The nightly example's second job, run with a `gh` that writes down what it is asked: the branch,
its one commit, and one pull request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate.report import document
from tests.support import reports
from tests.support.composite import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("jq") is None, reason="needs jq, which GitHub's runners have"
)
SHA, BASELINE = "1" * 40, 'entries: "a\u00e9"\n'
# Answers as GitHub does, through `--jq`: a commit's tree, what was made, how many pull requests are
# open.
GH = """#!{python}
import json, os, sys
given = sys.argv[1:]
path = next(item for item in given[1:] if item.startswith("repos/"))
body = json.load(sys.stdin) if "--input" in given else None
with open({log!r}, "a") as file:
    json.dump([path, given, body], file)
    file.write("\\n")
if "/git/ref/heads/repro-gate/" in path:
    sys.exit(0 if os.environ["BRANCH_IS_THERE"] else 1)
if "--silent" not in given:
    print(os.environ["OPEN"] if "/pulls?" in path else "c" * 40 if path.endswith("/git/commits") else "d" * 40)
"""


def proposed(
    folder: Path, *, branch: bool, pulls: int = 0, job: str = "propose"
) -> list[tuple[str, list[str], Any]]:
    """What the job asked of GitHub: path, arguments, body."""
    (folder / "repro.baseline.yml").write_text(BASELINE, encoding="utf-8")
    gh, log = folder / "bin/gh", folder / "log"
    gh.parent.mkdir(exist_ok=True)
    gh.write_text(GH.format(python=sys.executable, log=str(log)))
    gh.chmod(0o755)
    example = ROOT / "examples/workflows/nightly-baseline.yml"
    step = yaml.safe_load(example.read_text(encoding="utf-8"))["jobs"][job]["steps"][1]
    # a schedule's event may name no default branch
    assert job != "propose" or step["env"]["BASE"] == "${{ github.ref_name }}"
    variables = {
        "PATH": f"{gh.parent}{os.pathsep}{os.environ['PATH']}",
        "BASE": "main",
        "BRANCH": step["env"]["BRANCH"],
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_REPOSITORY_OWNER": "o",
        "GITHUB_SHA": SHA,
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "7",
        "BRANCH_IS_THERE": "1" if branch else "",
        "OPEN": str(pulls),
        "RUNNER_TEMP": str(folder),
    }
    command = ["bash", "-e", "-c", step["run"]]
    subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True, timeout=60)
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


@pytest.mark.parametrize(
    ("branch", "moved"),
    [(False, "repos/o/r/git/refs"), (True, "repos/o/r/git/refs/heads/repro-gate/baseline")],
)
def test_the_baseline_is_one_commit_on_the_tested(tmp_path: Path, branch: bool, moved: str) -> None:
    asked = proposed(tmp_path, branch=branch, pulls=int(branch))
    bodies = {path: body for path, _, body in asked}
    entry = {"path": "repro.baseline.yml", "mode": "100644", "type": "blob", "content": BASELINE}
    assert bodies["repos/o/r/git/trees"] == {"base_tree": "d" * 40, "tree": [entry]}
    commit = bodies["repos/o/r/git/commits"]
    assert (commit["tree"], commit["parents"]) == ("d" * 40, [SHA])
    # once: at its base the branch would close its pull request
    refs = [(path, given) for path, given, _ in asked if any("sha=" in text for text in given)]
    assert [path for path, _ in refs] == [moved] and f"sha={'c' * 40}" in refs[0][1]
    opened = [given for path, given, _ in asked if path == "repos/o/r/pulls"]
    told = {"head=repro-gate/baseline", "base=main", "title=Refresh repro.baseline.yml"}
    assert len(opened) == (not branch) and all(told <= {*given} for given in opened)


@pytest.mark.parametrize("branch", [False, True])
def test_the_badge_is_the_only_file_of_a_branch_of_its_own(tmp_path: Path, branch: bool) -> None:
    (tmp_path / "report.json").write_text(document.render(reports.PASS))
    made = tmp_path / "repro-gate-cli/bin"
    made.mkdir(parents=True)
    for program, text in (
        (made / "pip", "exit 0"),
        (made / "repro-gate", f'exec {sys.executable} -m repro_gate "$@"'),
    ):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/bin/true")
    asked = proposed(tmp_path, branch=branch, job="badge")
    bodies = {path: body for path, _, body in asked}
    (entry,) = bodies["repos/o/r/git/trees"]["tree"]
    assert entry["path"] == "badge.json"
    assert json.loads(entry["content"])["message"] == "bitwise identical"
    assert bodies["repos/o/r/git/commits"]["parents"] == []
    moved = "refs/heads/repro-gate/badge" if branch else "refs"
    assert asked[-1][0] == f"repos/o/r/git/{moved}" and f"sha={'c' * 40}" in asked[-1][1]
