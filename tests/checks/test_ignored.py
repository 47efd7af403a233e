"""Claims about what only this checkout has and a run that crashed for want of it names: data that
git ignores, and files that it did not find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout, tracked_files
from repro_gate.checks.code import files_of_this_machine
from repro_gate.checks.ignored import undeclared_data
from repro_gate.checks.interface import Evidence
from repro_gate.runs.launch import RunResult
from repro_gate.spec.model import DataItem, Train
from repro_gate.trace.fields import Location, Opened
from tests.support.built_traces import evidence, run, spec, training
from tests.support.repositories import git, repository, write

WORKSPACE = "/tmp/repro-gate-0-1/run/workspace"
ABSENT = "No such file or directory"
NOT_FOUND = f"FileNotFoundError: [Errno 2] {ABSENT}: "
OPS = "build/ops.py"
LIBRARY = "build/fused.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout with a script in a folder of its own; git ignores `data/mnist/`, `sets/*`,
    `wandb/`, `build/` and `*.pkl`."""
    folder = repository(tmp_path / "repo")
    ignored = (
        "data/mnist/\nsets/*\n!sets/.gitkeep\nwandb/\n__pycache__/\n.venv/\n*.log\nbuild/\n*.pkl\n"
    )
    tracked = {"gan__sets__dot_gitkeep": "", "sets___dot_gitkeep": "", "data__readme": ""}
    script = "print(1)\nMNIST('../data/mnist')\n"
    write(folder, _dot_gitignore=ignored, gan__gan_dot_py=script, **tracked)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "second")
    names = ("data__mnist__a", "sets__coco__b", "wandb__x", "_dot_venv__y", "gan____pycache____z")
    write(folder, **dict.fromkeys((*names, "out_dot_log", "build__ops_dot_py", "new_dot_py"), ""))
    write(folder, vocab_dot_pkl="", gan__vocab_dot_pkl="", build__vocab_dot_json="{}")
    (folder / LIBRARY).write_bytes(b"")
    (folder.parent / "outside.txt").write_text("")
    (folder / "build/link.py").symlink_to(folder.parent / "outside.txt")
    (folder / "build/up").symlink_to("/etc")
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


def lacking(facts: Evidence) -> dict[str, str]:
    """Return what is undeclared -> the line that names it."""
    return {item.path: str(item.place or "") for item in undeclared_data(facts)}


def test_a_log_that_names_what_git_ignores(repo: Path) -> None:
    for line, paths in (
        ("Dataset not found, missing paths ['data/mnist']", ["data/mnist/"]),
        (f"Dataset not found, missing paths ['{WORKSPACE}/data/mnist/a']", ["data/mnist/"]),
        (f"{NOT_FOUND}'data/mnist/a'", ["data/mnist/"]),
        ("no 'data/mnist' with 'data/mnist/a'", ["data/mnist/"]),
        ("no images in 'sets/coco', nor in 'sets'", ["sets/coco/"]),
        ("no vocabulary in 'vocab.pkl'", ["vocab.pkl"]),  # the root holds the spec
        ("no sets in the mnist data", []),
        ("no images in 'data/gone' or 'data/mnist/gone'", []),
        ("cannot read 'data', 'data/readme', 'train.py', './'", []),
        ("cannot read '.venv', '.venv/y', 'gan/__pycache__', 'out.log', '.git/config'", []),
        ("cannot read '/etc/hostname', '../../etc', 'build/up/hostname', 'data/mnist\0'", []),
    ):
        command = "python gan/run.py"
        assert lacking(crashed(repo, line, command=command)) == dict.fromkeys(paths, "")
        assert lacking(crashed(repo, line, outcome="finished")) == {}


def test_code_names_what_git_ignores_and_declared_data_is_no_finding(repo: Path) -> None:
    for command, inside in (("python gan/gan.py --out wandbs", "."), ("python gan.py", "gan")):
        facts = crashed(repo, "ValueError: download error", command=command, inside=inside)
        assert lacking(facts) == {"data/mnist/": "gan/gan.py:2"}
    facts = crashed(repo, "no 'gan/vocab.pkl'", command="python gan/gan.py")
    assert "gan/vocab.pkl" in lacking(facts), "beside code it is no folder that can be linked"
    facts = crashed(repo, "no 'data/mnist/a'", command="python gan/gan.py --set sets/coco")
    assert lacking(facts) == {"data/mnist/": "", "sets/coco/": ""}
    assert lacking(crashed(repo, "no 'data/mnist/a'", data="data/mnist")) == {}
    facts = crashed(repo, "no 'data/mnist/a'")
    assert lacking(replace(facts, runs=(*facts.runs, run("deterministic-2")))) == {}
    for last in ("ModuleNotFoundError: No module named 'x'", "SyntaxError: invalid syntax"):
        facts = crashed(
            repo, "Traceback (most recent call last):", last, command="python gan/gan.py"
        )
        assert lacking(facts) == {}, "whatever the code names, this is not for want of data"


@pytest.mark.parametrize(
    "line", ["out_dir = 'made'", "torch.save(net, 'made/x.pt')", "open('made/x', 'w')"]
)
def test_what_the_code_writes_is_no_data_that_it_needs(line: str, repo: Path) -> None:
    for text, paths in ((line, []), ("root = 'made'", ["made/"])):
        write(repo, _dot_gitignore="made/\n", gan__gan_dot_py=text, made__x="1", made__y="2")
        facts = crashed(repo, "ValueError: no", command="python gan/gan.py")
        found = undeclared_data(facts)
        assert [item.path for item in found] == paths
        assert [item.files for item in found] == [2] * len(paths)


def looked(*items: Opened, outcome: str) -> RunResult:
    """Return a run that opened and asked for these."""
    return run("deterministic-1", replace(training(), opened=list(items)), outcome=outcome)


@pytest.mark.parametrize("outcome", ["finished", "crashed"])
def test_what_lies_where_a_training_looked_is_told_whether_it_crashed_or_not(
    outcome: str, repo: Path
) -> None:
    train = Opened("gan/gan.py", True)
    at = Location("gan/gan.py", 2)
    write(repo, gan__gan_dot_py="print(1)\n", data__readme="x")
    git(repo, "commit", "-qam", "third")
    for item, data, paths in (
        (Opened("sets", True, at, sought=True), "", {"sets/coco/": str(at)}),
        (Opened("data/mnist", True, at, sought=True), "", {"data/mnist/": str(at)}),
        (Opened("data/mnist/b", True, at, sought=True), "", {}),
        (Opened("vocab.pkl", True, at, sought=True), "", {"vocab.pkl": str(at)}),
        (Opened("data/readme", True, at), "", {"data/mnist/": str(at)}),
        (Opened("data/readme", True, at), "data/mnist", {}),
        # its own folder, where code lies too
        (Opened("gan", True, at, sought=True), "", {}),
        (Opened("gan/readme", True, at), "", {}),
        (train, "data/mnist/a", {"data/mnist/c": ""}),
    ):
        write(repo, data__mnist__c="")
        facts = crashed(repo, data=data, command="python gan/gan.py")
        facts = replace(facts, runs=(looked(train, item, outcome=outcome),))
        assert lacking(facts) == paths, item


def test_a_line_that_names_a_file_that_was_not_there_and_only_this_checkout_has(repo: Path) -> None:
    for line, path in (
        (f"{NOT_FOUND}'{OPS}'", OPS),
        (f"[rank3]: {NOT_FOUND}'./src/../{OPS}'", OPS),
        (f'my.io.ReadError: {ABSENT}: "{OPS}"', OPS),
        (f"{NOT_FOUND}'/home/me/workspace/{OPS}'", ""),
        (f"python: can't open file '{WORKSPACE}/build/ops.py': [Errno 2] {ABSENT}", "build/ops.py"),
        (f"OSError: {LIBRARY}: cannot open shared object file: {ABSENT}", LIBRARY),
        (f"ValueError: '{OPS}' holds no words", ""),
        (f"warning: no cache, [Errno 2] {ABSENT}: '{OPS}'", ""),
        (f"{NOT_FOUND}'build/gone.py'", ""),
        (f"{NOT_FOUND}'new.py'", ""),
        (f"{NOT_FOUND}'build'", ""),
        (f"{NOT_FOUND}'.git/config'", ""),
        (f"{NOT_FOUND}'../outside.txt'", ""),
        (f"{NOT_FOUND}'{WORKSPACE}/../../../../../etc/hostname'", ""),
        (f"{NOT_FOUND}'build/link.py'", ""),
        (f"{NOT_FOUND}'build/ops\0.py'", ""),
        (f"{NOT_FOUND}'build/vocab.json'", ""),  # data
    ):
        facts = crashed(repo, "Traceback (most recent call last):", line)
        assert files_of_this_machine(facts) == ({path: "deterministic-1"} if path else {})


@pytest.mark.parametrize(
    ("changes", "name", "is_absent"),
    [
        ({}, OPS, True),
        ({"data": OPS}, OPS, False),
        ({"data": "build/op"}, OPS, True),
        *[({"outcome": end}, OPS, False) for end in ("finished", "timed-out", "interrupted")],
        # a relative path starts at the working directory
        ({}, "ops.py", False),
        ({"inside": "build"}, "ops.py", True),
    ],
)
def test_declared_data_runs_that_did_not_crash_and_what_was_copied_are_no_finding(
    changes: dict[str, str], name: str, is_absent: bool, repo: Path, tmp_path: Path
) -> None:
    line = f"{NOT_FOUND}'{name}'"
    assert list(files_of_this_machine(crashed(repo, line, **changes))) == [OPS] * is_absent
    write(tmp_path / "copy", **{name.replace("/", "__").replace(".", "_dot_"): "{}"})
    assert files_of_this_machine(crashed(tmp_path / "copy", line)) == {}, "without git"
