"""However a training ends, the run has the right outcome, one clear sentence and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.runs import arms, launch, watching
from repro_gate.runs.launch import Plan, Run, Site
from repro_gate.spec.model import Spec, Train
from tests.support.gates import tiered
from tests.support.tracing import PATH, blocks, trace_script, trained

TRAIN = """
import os, sys, time
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def one():
    opt.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    opt.step()
"""


def ending(run: Run) -> tuple[str, str]:
    assert run.problem and "\n" not in run.problem and run.remedy and not run.good
    return run.outcome, run.reason_id


@pytest.mark.parametrize(
    ("command", "problem", "remedy"),
    [
        ("python missing.py", "it exited with status 2", "see the log's end"),
        (
            ".venv/bin/python train.py",
            "it exited with status 127",
            "git-ignored files (a .venv, say) are not copied",
        ),
        ("python -c 'import torch_of_nobody'", "it exited with status 1", "see the log's end"),
        (
            """python -c 'raise ModuleNotFoundError("No module named \\047torch\\047")'""",
            "it exited with status 1",
            "activate the environment that you train in",
        ),
    ],
)
def test_a_command_that_cannot_start_says_what_to_do(
    command: str, problem: str, remedy: str, tmp_path: Path
) -> None:
    run = trace_script(tmp_path, "", command=command)
    assert ending(run) == ("crashed", "run/crashed")
    assert run.problem == problem and remedy in run.remedy
    assert run.ended.tail


def site_of(folder: Path, workspace: Path, cwd: Path) -> Site:
    return Site(
        run_folder=folder,
        workspace=workspace,
        cwd=cwd,
        traces=folder / "runs",
        outer={"PATH": PATH},
    )


def plan(seed: int = 1) -> Plan:
    return Plan(name="one", arm=arms.default(seed, None))


def test_a_working_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    train = Train(run="true", working_directory="sub/folder")
    site = site_of(tmp_path, tmp_path, tmp_path / "sub/folder")
    run = launch.launch(
        Spec(path=tmp_path / "repro.yml", train=train), plan(), site, lambda _: None
    )
    assert ending(run) == ("crashed", "run/no-working-directory")
    assert "'sub/folder'" in run.problem


def test_a_training_killed_after_a_step_is_killed_and_never_a_result(tmp_path: Path) -> None:
    run = trace_script(tmp_path, TRAIN + "one()\nos.kill(os.getpid(), 9)\n")
    assert ending(run) == ("killed", "run/killed")
    assert "by signal 9 from outside" in run.problem and "too little memory" not in run.remedy


KILLED_WORKER = """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        os.kill(os.getpid(), 9)
one()
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
"""


@pytest.mark.slow
def test_a_loader_worker_that_is_killed_is_a_crash_of_the_training(tmp_path: Path) -> None:
    run = trace_script(tmp_path, TRAIN + KILLED_WORKER)
    assert ending(run) == ("crashed", "run/crashed")
    assert "killed by signal: Killed" in " ".join(run.ended.tail)


@pytest.mark.slow
def test_a_rank_that_dies_without_a_word_leaves_a_truncated_trace_and_no_result(
    tmp_path: Path,
) -> None:
    dies = "one()\nif os.fork() == 0:\n    one()\n    os.kill(os.getpid(), 9)\nos.wait()\none()\n"
    run = trace_script(tmp_path, TRAIN + dies)
    assert ending(run) == ("untraced", "trace/unreadable")
    assert "truncated after step 0: the process ended" in run.problem


NO_TORCH = "print('no torch here')"


@pytest.mark.parametrize(
    "script", tiered((NO_TORCH, "import torch\nprint(torch.ones(2).sum())", TRAIN), (NO_TORCH,))
)
def test_a_training_that_never_steps_or_is_no_python_has_nothing_to_compare(
    script: str, tmp_path: Path
) -> None:
    run = trace_script(tmp_path, script)
    assert ending(run) == ("untraced", "run/nothing-recorded")
    assert run.problem.startswith("no torch optimizer took a step")
    assert "add two lines to the training loop" in run.remedy
    run = trace_script(tmp_path / "echo", "", command="echo hello")
    assert ending(run) == ("untraced", "run/nothing-recorded")
    assert run.problem == "no Python process of it could be traced"


@pytest.mark.slow
def test_a_text_of_the_tick_ends_the_run_early(tmp_path: Path) -> None:
    place = tmp_path / "place"
    for folder in (place / "workspace", place / "home", place / "tmp"):
        folder.mkdir(parents=True)
    (place / "workspace/train.py").write_text(
        TRAIN + "for _ in range(600):\n    one()\n    time.sleep(0.1)\n"
    )
    spec = Spec(path=tmp_path / "repro.yml", train=Train(run="python train.py", timeout=60))
    site = site_of(place, place / "workspace", place / "workspace")
    run = launch.launch(
        spec,
        plan(),
        site,
        lambda found: "diverged" if any(len(t.steps) >= 3 for t in found) else None,
    )
    assert (run.outcome, run.problem, run.reason_id) == (
        "interrupted",
        "diverged",
        "run/ended-early",
    )
    assert run.ended.seconds < 30


def test_a_training_that_does_not_leave_after_its_last_step_is_helped_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "STOP_GRACE", 1.0)
    run = trace_script(
        tmp_path, TRAIN + "try:\n    while True: one()\nfinally:\n    time.sleep(60)\n", steps=2
    )
    assert (run.outcome, run.steps, run.ended.stopped) == ("stopped", 2, "steps")
    assert run.ended.seconds < 30


def test_a_snippet_and_the_seed_in_a_command_are_filled_in(tmp_path: Path) -> None:
    workspace = tmp_path / "place/workspace"
    workspace.mkdir(parents=True)
    snippet = "from repro_gate import record, step\nrecord('x', {seed} / 4)\nstep()\n"
    spec = Spec(path=tmp_path / "repro.yml", train=Train(snippet=snippet))
    run = launch.launch(
        spec, plan(6), site_of(workspace.parent, workspace, workspace), lambda _: None
    )
    assert (run.outcome, blocks(trained(run), "loss", 0)[0].values) == ("finished", ((1.5).hex(),))
    echoed = trace_script(tmp_path / "two", "", command="echo seed={seed}", seed=7)
    assert echoed.ended.tail == ("seed=7",)
