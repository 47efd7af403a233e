"""The action's own steps in the real images: the quickstart passes, its broken twin fails, and both
say so where people look.

The API is the strict server of `support.github.server`, on this machine's loopback: the container
that publishes shares its network. Figures of the action's own time are printed at the end; they are no test, since
they depend on the machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.container.attacks import TOKEN
from tests.container.conftest import FIGURES
from tests.container.door import Door
from tests.container.engine import Engine
from tests.container.image import ROOT, Image
from tests.container.runner import PULL, REPOSITORY, RUNNER, Ended, Layout, lay_out, state_of
from tests.support.gates import LOOP
from tests.support.github.server import BOT, GitHub

QUICKSTART = ROOT / "examples/quickstart"
REPORT = "repro-gate-report"


@dataclass(frozen=True)
class Step:
    """One action's step: how it ended, what the workspace was before, and the pull request's
    conversation after."""

    ended: Ended
    before: Mapping[str, tuple[int, int, int, bytes]]
    home: tuple[str, ...]
    comments: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]


def _step(door: Door, layout: Layout, **inputs: str) -> Step:
    before = state_of(layout.workspace)
    with GitHub(REPOSITORY) as github:
        github.token(BOT, value=TOKEN)
        github.add_pull(PULL, layout.head)
        ended = door.start(layout, inputs, api_url=github.url)
        home = tuple(sorted(item.name for item in (layout.temporary / "_github_home").rglob("*")))
        return Step(ended, before, home, tuple(github.comments(PULL)), tuple(github.faults))


@pytest.fixture(scope="module")
def passing(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Step:
    """The quickstart, by the fewest runs and steps that have a cost."""
    layout = lay_out(tmp_path_factory.mktemp("passing"), {".": QUICKSTART})
    few = "train.steps=20"
    step = _step(door, layout, set=few)
    if step.ended.exit_code == 0:
        runs = sum(run["seconds"] for run in step.ended.report["runs"])
        whole = step.ended.report["seconds"]
        FIGURES["action_seconds"] = round(step.ended.seconds, 2)
        FIGURES["runs_seconds"] = round(runs, 2)
        FIGURES["gate_seconds_around_the_runs"] = round(whole - runs, 2)
        FIGURES["containers_and_publishing_seconds"] = round(step.ended.seconds - whole, 2)
    return step


@pytest.fixture(scope="module")
def broken(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Step:
    """Its broken twin, in a folder of its own, as `working_directory` names it."""
    layout = lay_out(tmp_path_factory.mktemp("broken"), {"training": QUICKSTART / "broken"})
    few = {"working_directory": "training", "set": "cost.measure=false\ntrain.steps=10"}
    return _step(door, layout, **few)


def test_the_quickstart_passes(passing: Step) -> None:
    outputs = passing.ended.outputs
    assert passing.ended.exit_code == 0, passing.ended.log
    assert (outputs["verdict"], outputs["identical"], outputs["exit_code"]) == ("pass", "true", "0")
    assert outputs["first_divergence"] == outputs["cause"] == ""
    low, high = json.loads(outputs["determinism_cost_ci95"])
    figure = outputs["determinism_cost_pct"]  # empty on a machine whose runs scatter
    assert -100 < low <= (float(figure) if figure else low) <= high
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", outputs["config_hash"])


def test_the_broken_twin_fails_and_says_where_and_why(broken: Step) -> None:
    outputs = broken.ended.outputs
    assert broken.ended.exit_code == 1, broken.ended.log
    told = {"verdict": "fail", "identical": "false", "exit_code": "1"}
    assert told.items() <= outputs.items()
    divergence = r'\{"step": -?\d+, "kind": "[a-z]+", "name": ".+"\}'
    assert re.fullmatch(divergence, outputs["first_divergence"])
    assert outputs["cause"] == (broken.ended.report["diagnosis"] or {"cause": ""})["cause"]


@pytest.fixture(params=["passing", "broken"])
def step(request: pytest.FixtureRequest) -> Step:
    """Each of the two."""
    found: Step = request.getfixturevalue(request.param)
    return found


def test_report_summary_comment_and_log_say_it_and_give_no_token_away(step: Step) -> None:
    ended = step.ended
    for name, kind in (("report", "json"), ("markdown", "md"), ("sarif", "sarif")):
        assert ended.outputs[name] == f"{REPORT}/report.{kind}"
        assert (ended.layout.workspace / ended.outputs[name]).stat().st_size > 0
    assert ended.report["verdict"] == ended.outputs["verdict"]
    assert ended.report["subject"]["sandbox"] == "own-user"
    assert ended.report["fingerprint"]["digest"] == "xxh3-128", (
        "the training's user may read the gate's own extension"
    )
    assert ended.report["config_hash"]["config_hash"] == ended.outputs["config_hash"]
    verdict, commit = step.ended.outputs["verdict"], step.ended.layout.head[:12]
    summary = step.ended.summary.strip()  # it begins with a line break
    assert verdict in summary.splitlines()[0] and commit in summary
    assert step.faults == ()
    (comment,) = step.comments
    assert comment["user"]["login"] == BOT
    assert verdict in comment["body"] and commit in comment["body"]
    assert step.ended.outputs["comment_url"] == comment["html_url"]
    log = step.ended.log
    told = [line for line in log.splitlines() if TOKEN in line]
    assert [line for line in told if not line.startswith("::add-mask::")] == []
    assert log.count("::group::") == log.count("::endgroup::") > 0
    stopped = re.findall(r"^::stop-commands::(\S+)$", log, re.MULTILINE)
    assert stopped and len(set(stopped)) == len(stopped)
    assert all(re.search(rf"^::{re.escape(token)}::$", log, re.MULTILINE) for token in stopped)


def test_a_failure_is_annotated_and_a_pass_is_not(broken: Step, passing: Step) -> None:
    found = re.findall(r"^::error .*file=([^,:]+)", broken.ended.log, re.MULTILINE)
    assert found
    assert all((broken.ended.layout.workspace / name).is_file() for name in found), found
    assert not re.search(r"^::error", passing.ended.log, re.MULTILINE)


def test_workspace_and_runners_folders_are_as_they_were_but_for_the_report(step: Step) -> None:
    layout = step.ended.layout
    after = state_of(layout.workspace, without=(REPORT,))
    assert after.keys() == step.before.keys()
    assert [name for name in after if after[name] != step.before[name]] == []
    owners = {path.lstat().st_uid for path in [layout.workspace, *layout.workspace.rglob("*")]}
    assert owners == {layout.root.stat().st_uid}  # the next checkout has to remove it
    temporary = step.ended.layout.temporary
    assert step.home == ()  # no .gitconfig, no cache
    for folder in (temporary, *(item for item in temporary.iterdir() if item.is_dir())):
        assert folder.stat().st_mode & 0o777 == 0o755, folder
    kept = {"_github_home", "_github_workflow", "_runner_file_commands"}
    assert {item.name for item in temporary.iterdir() if item.is_dir()} == kept
    assert not [
        path for path in (temporary / "_runner_file_commands").iterdir() if path.read_text()
    ]


def test_the_checkout_that_git_refuses_is_gated_all_the_same(passing: Step) -> None:
    """It is another user's than the action's: without care, git says `dubious ownership`."""
    if passing.ended.layout.workspace.stat().st_uid != RUNNER:
        pytest.skip("the checkout is the engine's own user's here")
    checklist = {item["id"]: item["status"] for item in passing.ended.report["checklist"]}
    assert checklist["code/commit"] == checklist["code/clean"] == "pass"
    assert passing.ended.report["subject"]["commit"] == passing.ended.layout.head
    assert "dubious ownership" not in passing.ended.log


def test_a_spec_with_a_mistake_is_a_usage_error_on_its_line(door: Door, tmp_path: Path) -> None:
    layout = lay_out(
        tmp_path / "job", {"repro.yml": "version: 1\ntrain: {runs: python train.py}\n"}
    )
    ended = door.start(layout, {"comment": "never"})
    assert ended.exit_code == 2, ended.log
    assert re.search(r"^::error .*file=repro\.yml,line=2.*::.*train", ended.log, re.MULTILINE), (
        ended.log
    )
    assert (ended.outputs["verdict"], ended.outputs["exit_code"]) == ("", "2")


def _below(root: Path, project: Mapping[str, str | Path]) -> Layout:
    """As `actions/checkout` with `path: q` leaves the workspace: the repository is not its root."""
    layout = lay_out(root, project)
    layout.workspace.rename(root / "q")
    layout.workspace.mkdir()
    (root / "q").rename(layout.workspace / "q")
    os.chown(layout.workspace, root.stat().st_uid, root.stat().st_gid)
    return layout


SPEC = "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\n"


def test_a_checkout_below_the_workspaces_root_is_gated(door: Door, tmp_path: Path) -> None:
    layout = _below(tmp_path / "job", {"training/train.py": LOOP, "training/repro.yml": SPEC})
    before = state_of(layout.workspace)
    ended = door.start(layout, {"comment": "never", "working_directory": "q/training"})
    assert ended.exit_code == 0 and ended.outputs["verdict"] == "pass", ended.log
    assert state_of(layout.workspace, without=(REPORT,)) == before


@pytest.mark.parametrize(
    "variables",
    [
        [],
        ["--env", "GITHUB_WORKSPACE=/github/workspace"],
        ["--env", "CI=true", "--env", "GITLAB_CI=true"],
    ],
)
def test_the_image_is_started_by_hand_on_a_checkout_below_its_mount(
    variables: list[str], engine: Engine, image: Image, tmp_path: Path
) -> None:
    layout = _below(tmp_path / "job", {"train.py": LOOP, "repro.yml": SPEC})
    mount = f"{layout.workspace}:/github/workspace"
    options = ["--rm", "--network=none", "-v", mount, *variables]
    gate = ["--entrypoint", "/opt/repro-gate/bin/python", image.name, "-I", "-m", "repro_gate"]
    command = [*engine.run, *options, *gate, "run", "/github/workspace/q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_a_job_that_is_cancelled_finds_its_folders_as_they_were(
    signal: str, door: Door, tmp_path: Path
) -> None:
    """The runner interrupts what runs and starts the last step: by then every mode has been given
    back, unless the gate was killed outright, and no container and no volume is left."""
    layout = lay_out(tmp_path / "job", {".": QUICKSTART})
    before = state_of(layout.root)

    def cancel() -> None:
        deadline = time.monotonic() + 120
        while layout.workspace.stat().st_mode & 0o077 and time.monotonic() < deadline:
            time.sleep(0.05)
        names = door.engine.ask("ps", "--quiet", "--filter", "label=repro-gate").split()
        door.engine.ask("kill", "--signal", signal, *names)

    watching = threading.Thread(target=cancel)
    watching.start()
    ended = door.start(layout, {"comment": "never"})
    watching.join()
    assert ended.exit_code not in (0, 1), ended.log
    assert door.left() == ""
    if signal == "TERM":
        after = state_of(layout.root)
        assert {name: after[name][:3] for name in before} == {
            name: state[:3] for name, state in before.items()
        }


def test_another_phase_than_the_actions_is_refused(engine: Engine, image: Image) -> None:
    command = [*engine.run, "--rm", "--network=none", image.name, "deploy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "deploy" in done.stdout + done.stderr
