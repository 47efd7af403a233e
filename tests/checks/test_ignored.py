"""Claims about what only this checkout has and a run that crashed for want of it names: data that
git ignores, and files that it did not find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout, tracked_files
from repro_gate.checks.code import files_of_this_machine
from repro_gate.checks.ignored import ignored_data
from repro_gate.checks.interface import Evidence
from repro_gate.spec.model import DataItem, Train
from tests.support.built_traces import evidence, run, spec
from tests.support.repositories import git, repository, write

WORKSPACE = "/tmp/repro-gate-0-1/run/workspace"
LOG = "the log of deterministic-1"
ABSENT = "No such file or directory"
NOT_FOUND = f"FileNotFoundError: [Errno 2] {ABSENT}: "
VOCAB = "build/vocab.json"
LIBRARY = "build/fused.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout with a script in a folder of its own; git ignores `data/mnist/`, `sets/*`,
    `wandb/` and `build/`."""
    folder = repository(tmp_path / "repo")
    ignored = "data/mnist/\nsets/*\n!sets/.gitkeep\nwandb/\n__pycache__/\n.venv/\n*.log\nbuild/\n"
    tracked = {"gan__sets__dot_gitkeep": "", "sets___dot_gitkeep": "", "data__readme": ""}
    script = "print(1)\nMNIST('../data/mnist')\n"
    write(folder, _dot_gitignore=ignored, gan__gan_dot_py=script, **tracked)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "second")
    names = ("data__mnist__a", "sets__coco__b", "wandb__x", "_dot_venv__y", "gan____pycache____z")
    write(folder, **dict.fromkeys((*names, "out_dot_log", "build__ops_dot_py", "new_dot_txt"), ""))
    write(folder, build__vocab_dot_json="{}")
    (folder / LIBRARY).write_bytes(b"")
    (folder.parent / "outside.txt").write_text("")
    (folder / "build/link").symlink_to(folder.parent / "outside.txt")
    return folder


def crashed(
    folder: Path,
    *tail: str,
    command: str = "python train.py",
    inside: str = ".",
    outcome: str = "crashed",
    data: str = "",
) -> Evidence:
    """Return the evidence of a checkout where a run ended with these lines."""
    checkout = inspect_checkout(folder)
    train = Train(run=command, working_directory=inside)
    declared = (DataItem(data),) if data else ()
    return evidence(
        spec=replace(spec(folder), train=train, data=declared),
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        runs=(run("deterministic-1", outcome=outcome, problem="x", tail=tail),),
    )


def test_a_log_that_names_what_git_ignores(repo: Path) -> None:
    for line, paths in (
        ("Dataset not found, missing paths ['data/mnist']", ["data/mnist"]),
        (f"Dataset not found, missing paths ['{WORKSPACE}/data/mnist/a']", ["data/mnist/a"]),
        ("no 'data/mnist' with 'data/mnist/a'", ["data/mnist"]),  # the first covers the second
        ("no images in 'sets/coco', nor in 'sets'", ["sets/coco"]),
        ("no sets in the mnist data", []),
        ("no images in 'data/gone' or 'data/mnist/gone'", []),
        ("cannot read 'data', 'data/readme', 'train.py', './'", []),
        ("cannot read '.venv', '.venv/y', 'gan/__pycache__', 'out.log', '.git/config'", []),
        ("cannot read '/etc/hostname', '../../etc', 'build/link', 'data/mnist\0'", []),
    ):
        assert ignored_data(crashed(repo, line)) == dict.fromkeys(paths, LOG)
        assert ignored_data(crashed(repo, line, outcome="finished")) == {}


def test_code_names_what_git_ignores_and_declared_data_is_no_finding(repo: Path) -> None:
    for command, inside in (("python gan/gan.py --out wandbs", "."), ("python gan.py", "gan")):
        facts = crashed(repo, "ValueError: download error", command=command, inside=inside)
        assert ignored_data(facts) == {"data/mnist": "gan/gan.py:2"}
    facts = crashed(repo, "no 'data/mnist/a'", command="python gan/gan.py --set sets/coco")
    places = {"data/mnist/a": LOG, "sets/coco": "train.run", "data/mnist": "gan/gan.py:2"}
    assert ignored_data(facts) == places
    assert ignored_data(crashed(repo, "no 'data/mnist/a'", data="data/mnist")) == {}
    facts = crashed(repo, "no 'data/mnist/a'")
    assert ignored_data(replace(facts, runs=(*facts.runs, run("deterministic-2")))) == {}


def test_a_line_that_names_a_file_that_was_not_there_and_only_this_checkout_has(repo: Path) -> None:
    for line, path in (
        (f"{NOT_FOUND}'{VOCAB}'", VOCAB),
        (f"[rank3]: {NOT_FOUND}'./src/../{VOCAB}'", VOCAB),
        (f'my.io.ReadError: {ABSENT}: "{VOCAB}"', VOCAB),
        (f"{NOT_FOUND}'/home/me/workspace/{VOCAB}'", ""),
        (f"python: can't open file '{WORKSPACE}/build/ops.py': [Errno 2] {ABSENT}", "build/ops.py"),
        (f"OSError: {LIBRARY}: cannot open shared object file: {ABSENT}", LIBRARY),
        (f"ValueError: '{VOCAB}' holds no words", ""),
        (f"warning: no cache, [Errno 2] {ABSENT}: '{VOCAB}'", ""),
        (f"{NOT_FOUND}'build/gone.json'", ""),
        (f"{NOT_FOUND}'new.txt'", ""),
        (f"{NOT_FOUND}'build'", ""),
        (f"{NOT_FOUND}'.git/config'", ""),
        (f"{NOT_FOUND}'../outside.txt'", ""),
        (f"{NOT_FOUND}'{WORKSPACE}/../../../../../etc/hostname'", ""),
        (f"{NOT_FOUND}'build/link'", ""),
        (f"{NOT_FOUND}'build/vocab\0.json'", ""),
    ):
        facts = crashed(repo, "Traceback (most recent call last):", line)
        assert files_of_this_machine(facts) == ({path: "deterministic-1"} if path else {})


@pytest.mark.parametrize(
    ("changes", "name", "is_absent"),
    [
        ({}, VOCAB, True),
        ({"data": VOCAB}, VOCAB, False),
        ({"data": "build/vocab"}, VOCAB, True),
        *[({"outcome": end}, VOCAB, False) for end in ("finished", "timed-out", "interrupted")],
        # a relative path starts at the working directory
        ({}, "vocab.json", False),
        ({"inside": "build"}, "vocab.json", True),
    ],
)
def test_declared_data_runs_that_did_not_crash_and_what_was_copied_are_no_finding(
    changes: dict[str, str], name: str, is_absent: bool, repo: Path, tmp_path: Path
) -> None:
    line = f"{NOT_FOUND}'{name}'"
    assert list(files_of_this_machine(crashed(repo, line, **changes))) == [VOCAB] * is_absent
    write(tmp_path / "copy", **{name.replace("/", "__").replace(".", "_dot_"): "{}"})
    assert files_of_this_machine(crashed(tmp_path / "copy", line)) == {}, "without git"
