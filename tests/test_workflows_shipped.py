"""The workflows of this repository and those that users copy: pinned, with the least permissions,
and doing what their comments say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate.commands.arguments import parser
from tests.support.composite import FOLDERS, ROOT, load
from tests.support.repositories import commit, git
from tests.support.shell import shellcheck

OURS = sorted((ROOT / ".github/workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples/workflows").glob("*.yml"))
ALL = [*OURS, *EXAMPLES]
GATE = ROOT / ".github/workflows/gate.yml"  # that users call
ACTIONS = {f"repro-gate/repro-gate/{folder}".rstrip("/"): name for name, folder in FOLDERS.items()}
LOCAL = {f"./{folder}": name for name, folder in FOLDERS.items()}
CALLED = "repro-gate/repro-gate/.github/workflows/gate.yml@v1"  # in place of steps
# May write: what for. Every other permission of every job reads, or there is none.
WRITES = {
    ("self-test.yml", "container"): {"pull-requests"},
    ("self-test.yml", "comment"): {"pull-requests"},
    ("release.yml", "image"): {"packages", "attestations", "id-token"},
    ("release.yml", "package"): {"attestations", "id-token"},
    ("release.yml", "draft"): {"contents"},
    ("move-major.yml", "move"): {"contents"},
    ("pull-request.yml", "repro-gate"): {"pull-requests"},
    ("own-image.yml", "repro-gate"): {"pull-requests"},
    ("gate.yml", "comment"): {"pull-requests"},
    # what the workflow that they call may have at most
    ("native.yml", "repro-gate"): {"pull-requests"},
    ("slurm.yml", "repro-gate"): {"pull-requests"},
    ("gpu-matrix.yml", "comment"): {"pull-requests"},
    ("fork-safe-comment.yml", "comment"): {"pull-requests"},
    ("nightly-baseline.yml", "propose"): {"contents", "pull-requests"},
    ("nightly-baseline.yml", "badge"): {"contents"},
}

each = pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)


def read(path: Path) -> dict[str, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads `on` so
    return found


def example(name: str) -> dict[str, Any]:
    return read(ROOT / "examples/workflows" / name)


def all_steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job.get("steps", [])]


def test_every_action_of_others_is_pinned_by_one_commit_everywhere() -> None:
    pins: dict[str, set[str]] = {}
    for path in [*ALL, ROOT / "docs/action.md"]:
        for name, ref, rest in re.findall(
            r"^ *(?:- )?uses: ([^@\s]+)@?(\S*)(.*)$", path.read_text(), re.MULTILINE
        ):
            if name in (*ACTIONS, CALLED.partition("@")[0]):
                assert ref == "v1"
            elif not name.startswith("./"):
                assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", ref + rest), (path.name, name)
                pins.setdefault(name, set()).add(ref + rest)
    assert len(pins) > 8 and {name: found for name, found in pins.items() if len(found) > 1} == {}


@each
def test_permissions_are_given_job_by_job_and_writing_has_a_reason(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}
    for name, job in workflow["jobs"].items():
        writes = {key for key, value in job["permissions"].items() if value != "read"}
        assert writes == WRITES.get((path.name, name), set()), name
        assert set(job["permissions"].values()) <= {"read", "write"}
        limit = job.get("timeout-minutes")
        if job.get("uses") == CALLED:
            assert (
                limit is None
                and job["with"].keys() <= read(GATE)["on"]["workflow_call"]["inputs"].keys()
            )
        elif limit != "${{ inputs.timeout-minutes }}":
            assert 1 <= limit <= 120


@each
def test_no_token_in_a_checkout_and_no_expression_in_a_script(path: Path, tmp_path: Path) -> None:
    steps = all_steps(path)
    assert all(
        step["with"]["persist-credentials"] is False
        for step in steps
        if step.get("uses", "").startswith("actions/checkout@")
    )
    scripts = {str(number): step["run"] for number, step in enumerate(steps) if "run" in step}
    assert not [text for text in scripts.values() if "${{" in text]
    if scripts:
        shellcheck(scripts, tmp_path)


def test_the_steps_that_these_rules_are_about_are_found() -> None:
    uses = [step.get("uses", "").partition("@")[0] for path in ALL for step in all_steps(path)]
    assert uses.count("actions/checkout") > 5 and uses.count("") > 5
    assert "native" in {ACTIONS.get(name) or LOCAL.get(name) for name in uses}


@each
def test_inputs_are_known_and_a_job_beside_native_can_only_read(path: Path) -> None:
    """A training that `native` gates can get hold of each later step's token, and
    `actions/checkout` has one again when the job ends."""
    for name, job in read(path)["jobs"].items():
        for step in job.get("steps", []):
            uses = step.get("uses", "").partition("@")[0]
            action = ACTIONS.get(uses) or LOCAL.get(uses)
            assert action is None or set(step.get("with", {})) <= set(load(action)["inputs"]), step
            if action == "native":
                assert job["permissions"] == {"contents": "read"} and "secrets." not in json.dumps(
                    job
                ), name


def posts(job: dict[str, Any], gate: dict[str, Any], path: str = "") -> bool:
    """Whether `job` posts what `gate` has uploaded, with the inputs as they are by default, and
    runs nothing of the pull request."""
    download, post = job["steps"]
    (upload,) = [step for step in gate["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["with"]["name"] == download["with"]["pattern"]
    assert upload["with"]["path"] == download["with"]["path"] + path
    return (
        not any("run" in item or "checkout" in item["uses"] for item in (download, post))
        and ACTIONS.get(post["uses"].partition("@")[0]) == "comment"
        and "with" not in post
        and download["with"]["path"] == load("comment")["inputs"]["report"]["default"]
    )


def test_what_writes_runs_nothing_of_the_pull_request_and_no_training() -> None:
    gate, comment = example("fork-safe-gate.yml"), example("fork-safe-comment.yml")
    assert comment["on"]["workflow_run"] == {"workflows": [gate["name"]], "types": ["completed"]}
    assert list(gate["on"]) == ["pull_request"]
    (job,) = comment["jobs"].values()
    assert posts(job, gate["jobs"]["gate"], "/report.json")
    jobs = read(GATE)["jobs"]
    *_, gate, upload = jobs["gate"]["steps"]
    assert ACTIONS[gate["uses"].partition("@")[0]] == "native"
    assert "upload-artifact" in upload["uses"] and posts(jobs["comment"], jobs["gate"])
    jobs = example("nightly-baseline.yml")["jobs"]
    assert jobs["gate"]["permissions"] == {"contents": "read"}
    used = [step.get("uses", "") for step in jobs["propose"]["steps"]]
    assert not any(name.partition("@")[0] in ACTIONS or "checkout" in name for name in used)
    assert "repro-gate " not in jobs["propose"]["steps"][1]["run"].replace('title "Refresh', "")


def test_each_cell_has_its_own_artifact_and_all_one_comment(tmp_path: Path) -> None:
    jobs = example("gpu-matrix.yml")["jobs"]
    steps = jobs["gate"]["steps"]
    (gate,) = [step for step in steps if step["uses"].partition("@")[0] in ACTIONS]
    (upload,) = [step for step in steps if "upload-artifact" in step["uses"]]
    assert "${{ matrix.model }}" in gate["with"]["report"] and gate["with"]["comment"] == "never"
    assert upload["with"]["name"] == upload["with"]["path"] == gate["with"]["report"]
    download, _ = jobs["comment"]["steps"]
    assert fnmatchcase(gate["with"]["report"], download["with"]["pattern"])
    assert jobs["comment"]["needs"] == "gate"
    # what holds the token runs nothing of the pull request
    assert "checkout" not in json.dumps(jobs["comment"])
    post = example("gpu-matrix.yml")["jobs"]["comment"]["steps"][1]["run"]
    made = tmp_path / "repro-gate-cli/bin"
    for folder in (tmp_path / "reports/a", tmp_path / "reports/b", made):
        folder.mkdir(parents=True)
        (folder / "report.json").touch()
    for program in (tmp_path / "python3", made / "pip", made / "repro-gate"):
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.given"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "RUNNER_TEMP": str(tmp_path), "NUMBER": "7"}
    command = ["bash", "-eo", "pipefail", "-c", post]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
    options = parser().parse_args((made / "repro-gate.given").read_text().split())
    assert (options.command, options.pull_request, options.matrix) == ("comment", 7, "gpus")
    assert [str(path.parent) for path in options.report] == ["reports/a", "reports/b"]


def test_the_page_of_the_examples_names_each_of_them() -> None:
    page = (ROOT / "examples/workflows/README.md").read_text()
    links = re.findall(r"\]\((?!https?://|#)([^)#]+\.yml)", page)
    assert {*links} == {item.name for item in EXAMPLES}


def test_the_tag_of_a_release_is_read_once_and_its_commit_handed_on() -> None:
    jobs = read(ROOT / ".github/workflows/move-major.yml")["jobs"]
    tag, commit = "github.event.release.tag_name", "${{ needs.verify.outputs.commit }}"
    (verify,) = [step["with"] for step in jobs["verify"]["steps"] if tag in json.dumps(step)]
    assert verify["ref"] == f"${{{{ {tag} }}}}"
    assert jobs["try"]["steps"][0]["with"]["ref"] == commit and tag not in json.dumps(jobs["try"])
    (move,) = jobs["move"]["steps"]
    assert move["env"]["COMMIT"] == commit and "commits/" not in move["run"]
    release = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert {job["environment"] for job in (jobs["move"], release["image"], release["draft"])} == {
        "release"
    }
    assert release["package"]["environment"] == "pypi"


@pytest.mark.parametrize("changed", ["action.yml", "train.py"])
def test_a_release_is_the_commit_of_main_that_its_image_was_built_from(
    changed: str, tmp_path: Path
) -> None:
    """The step as it stands, with a `gh` that says what it was asked."""
    image = f"ghcr.io/a/b@sha256:{'0' * 64}"
    work = tmp_path / "work"
    work.mkdir()
    for name in ("action.yml", "train.py"):
        (work / name).write_text("image: Dockerfile\n")
    git(work, "init", "-q")
    parent = commit(work)
    pinned = "".join(f"        {kind}_IMAGE: '{image}'\n" for kind in ("GATE", "CPU", "CUDA"))
    (work / "action.yml").write_text(pinned)
    (work / changed).write_text((work / changed).read_text() + "# more\n")
    head = commit(work)
    (tmp_path / "gh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{tmp_path}/asked"\n')
    (tmp_path / "gh").chmod(0o755)
    steps = read(ROOT / ".github/workflows/move-major.yml")["jobs"]["verify"]["steps"]
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", steps[1]["run"]],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if changed == "train.py":
        assert done.returncode == 1 and "changes action.yml train.py" in done.stdout
        assert not (tmp_path / "asked").exists()
    else:
        asked = (tmp_path / "asked").read_text().split()
        assert asked[asked.index("--source-ref") + 1] == "refs/heads/main"
        assert asked[asked.index("--source-digest") + 1] == parent
        assert (tmp_path / "output").read_text() == f"commit={head}\n"
