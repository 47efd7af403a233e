"""Claims about data that git ignores, which a training that crashed names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checks.ignored import ignored_data
from repro_gate.checks.interface import Evidence
from repro_gate.spec.model import DataItem, Train
from tests.support.built_traces import evidence, run, spec
from tests.support.repositories import git, repository, write

WORKSPACE = "/tmp/repro-gate-0-1/run/workspace"
LOG = "the log of deterministic-1"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout with a script in a folder of its own; git ignores `data/mnist/`, `sets/*` and
    `wandb/`."""
    folder = repository(tmp_path / "repo")
    write(
        folder,
        _dot_gitignore="data/mnist/\nsets/*\n!sets/.gitkeep\nwandb/\n__pycache__/\n.venv/\n*.log\n",
        gan__sets__dot_gitkeep="",
    )
    write(
        folder,
        sets___dot_gitkeep="",
        data__readme="",
        gan__gan_dot_py="print(1)\nMNIST('../data/mnist')\n",
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "second")
    write(
        folder,
        data__mnist__a="",
        sets__coco__b="",
        wandb__x="",
        _dot_venv__y="",
        gan____pycache____z="",
        out_dot_log="",
    )
    return folder


def crashed(
    folder: Path,
    *tail: str,
    command: str = "python train.py",
    inside: str = ".",
    outcome: str = "crashed",
) -> Evidence:
    checkout = inspect_checkout(folder)
    return evidence(
        spec=replace(spec(folder), train=Train(run=command, working_directory=inside)),
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        uncommitted=checkout.uncommitted,
        runs=(run("deterministic-1", outcome=outcome, problem="x", tail=tail),),
    )


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("Dataset not found, missing paths ['data/mnist']", "data/mnist"),
        (f"Dataset not found, missing paths ['{WORKSPACE}/data/mnist/a']", "data/mnist/a"),
        ("no images in ./data/mnist.", "data/mnist"),
        ('no images in "sets"', "sets"),  # of which the workspaces have .gitkeep alone
        ("no images in sets/coco", "sets/coco"),
    ],
)
def test_a_log_that_names_what_git_ignores(line: str, path: str, repo: Path) -> None:
    assert ignored_data(crashed(repo, line)) == {path: LOG}
    assert ignored_data(crashed(repo, line, outcome="finished")) == {}


@pytest.mark.parametrize(
    "line",
    [
        "no sets in the mnist data",
        "no images in 'data/gone' or 'data/mnist/gone'",
        "cannot read 'data', 'data/readme', 'train.py', './'",
        "cannot read '.venv', '.venv/y', 'gan/__pycache__', 'out.log', '.git/config'",
        "cannot read '/etc/hostname', '../../etc', 'data/mnist\0'",
    ],
)
def test_other_words_name_nothing(line: str, repo: Path) -> None:
    assert ignored_data(crashed(repo, line)) == {}


def test_code_that_names_what_git_ignores(repo: Path) -> None:
    """The script that the command names, relative to its folder or the working directory; a log
    that names it too comes first."""
    for command, inside in (("python gan/gan.py --out wandbs", "."), ("python gan.py", "gan")):
        assert ignored_data(
            crashed(repo, "ValueError: download error", command=command, inside=inside)
        ) == {"data/mnist": "gan/gan.py:2"}
    found = crashed(
        repo, "no 'data/mnist/a' and no 'data/mnist/a'", command="python gan/gan.py --set sets/coco"
    )
    assert ignored_data(found) == {"data/mnist/a": LOG, "sets/coco": "train.run"}


def test_declared_data_and_what_leads_out_are_no_finding(repo: Path) -> None:
    found = crashed(repo, "no 'data/mnist/a'")
    assert (
        ignored_data(replace(found, spec=replace(found.spec, data=(DataItem("data/mnist"),)))) == {}
    )
    (repo / "sets/link").symlink_to("/etc")
    assert ignored_data(crashed(repo, "no sets/link and no sets/link/hostname")) == {}
    assert ignored_data(replace(found, runs=(*found.runs, run("deterministic-2")))) == {}
