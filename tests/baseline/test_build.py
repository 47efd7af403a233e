"""Claims about the config hash of real checkouts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from repro_gate.baseline.config_hash import ConfigHash, changed_inputs
from repro_gate.baseline.inputs import code_digest, config_hash_of
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import take_snapshot
from repro_gate.commands import check as command
from repro_gate.data.declared import data_path, verify_data
from repro_gate.errors import GateError, Inconclusive
from repro_gate.files import remove_tree
from repro_gate.gate import evidence
from repro_gate.gate.evidence import IMAGE_VARIABLE
from repro_gate.machine import read_machine
from repro_gate.runs.progress import Watch
from repro_gate.spec.loader import load_spec
from tests.support.repositories import git, repository, write

SPEC = """\
version: 1
train: {run: 'python train.py --seed {seed}', steps: 5, env: {MODE: a}}
data: [{path: data/train.bin}, {path: more}]
env: {lockfile: requirements.lock}
"""
FACTS = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "device": "cpu: AVX512",
    "cpu-isa": "AVX512",
    "threads": "2",
}
MACHINE = {"cpu-model": "AMD EPYC"}
PROGRAM = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[2], 8))
from tests.baseline.test_build import of
print(of(Path(sys.argv[1]), real_machine=True))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = repository(tmp_path / "repo")
    write(root, repro_dot_yml=SPEC, requirements_dot_lock="torch==2.13.0", data__train_dot_bin="d")
    (root / "link").symlink_to("pkg")
    write(root, more__one="1", more__two="2", _dot_gitignore="*.log\nmore/\n", **{"e\u0301.py": ""})
    (root / "run.sh").write_text("#!/bin/sh")
    (root / "run.sh").chmod(0o755)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "second")
    return root


def of(root: Path, *overrides: str, real_machine: bool = False, folder: str = ".") -> ConfigHash:
    """The config hash of the checkout at `root`, by the way that the gate goes."""
    spec = load_spec(root / folder / "repro.yml", overrides)
    beside, place = spec.path.parent, Path(tempfile.mkdtemp()).resolve()
    try:
        leave_out = [data_path(item, beside) for item in spec.data]
        snapshot = take_snapshot(inspect_checkout(beside), place / "snapshot", leave_out)
        machine = read_machine() if real_machine else MACHINE
        data = verify_data(spec.data, beside)
        return config_hash_of(spec, snapshot, data, FACTS, machine, None)
    finally:
        remove_tree(place)


def names(a: ConfigHash, b: ConfigHash) -> list[str]:
    return [move.name for move in changed_inputs(a, b)]


def test_it_is_the_same_for_another_path_user_and_umask(checkout: Path, tmp_path: Path) -> None:
    clone = tmp_path / "a b/é"
    git(tmp_path, "clone", "-q", str(checkout), str(clone))
    shutil.copytree(checkout / "more", clone / "more")
    other = {"HOME": "/nonexistent", "USER": "somebody", "PYTHONHASHSEED": "7"}
    other |= {"TMPDIR": str(tmp_path), "TZ": "America/St_Johns", "LANG": "tr_TR.UTF-8"}
    other |= {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    found = set()
    for root, more, umask in ((checkout, {}, "022"), (clone, other, "077")):
        command = [sys.executable, "-c", PROGRAM, str(root), umask]
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), **more}
        found.add(subprocess.check_output(command, env=environment, cwd="/"))
    assert len(found) == 1


CHANGES = {  # a shell command, and what it moves
    "a byte of code": ("echo 2 >> train.py", ["code"]),
    "a line ending": ("printf 'print(1)\\r' > train.py", ["code"]),
    "a file moved": ("mv train.py pkg", ["code"]),
    "a file gone": ("rm train.py", ["code"]),
    "a file more": ("touch new.py", ["code"]),
    "files exchanged": ("mv train.py t; mv pkg/model.py train.py; mv t pkg/model.py", ["code"]),
    "no longer executable": ("chmod 644 run.sh", ["code"]),
    "a link to elsewhere": ("ln -sfn data link", ["code"]),
    "a link that became a file": ("rm link; printf pkg > link", ["code"]),
    "a name in another Unicode form": ("mv e\u0301.py \u00e9.py", ["code"]),
    "a name that is not UTF-8": ("mv train.py $(printf '\\377').py", ["code"]),
    "a byte of data": ("echo e > data/train.bin", ["data/data/train.bin"]),
    "a byte in a data folder": ("echo 3 > more/two", ["data/more"]),
    "a file more in a data folder": ("touch more/three", ["data/more"]),
    "a file renamed in a data folder": ("mv more/two more/zwei", ["data/more"]),
    "the lockfile": ("echo torch==2.12.0 > requirements.lock", ["lockfile"]),
    "no lockfile": ("rm requirements.lock", ["lockfile"]),
    "an ignored file": ("touch x.log", []),
    "another branch": ("git checkout -qb other", []),
    "a commit": ("git -c user.name=x -c user.email=x@y commit -q --allow-empty -m third", []),
    "a comment in the spec": ("echo '# a comment' >> repro.yml", []),
    "a baseline": ("echo '{}' > repro.baseline.yml", []),
    "another time of change": ("touch -d @1 train.py data/train.bin", []),
    "an empty folder": ("mkdir empty", []),
    "a lockfile executable": ("chmod 755 requirements.lock", []),
    "the git configuration": ("git config core.autocrlf input", []),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_moves_its_own_input(checkout: Path, change: str, expected: list[str]) -> None:
    before = of(checkout)
    subprocess.run(["sh", "-c", change], cwd=checkout, check=True)
    after = of(checkout)
    assert names(before, after) == expected and before.platform == after.platform
    same = before.recipe == after.recipe
    assert same == (before.config_hash == after.config_hash) == (not expected)


def test_a_change_of_the_spec_moves_its_own_input(checkout: Path) -> None:
    for override, expected in (
        ("train.env={}", ["train.env/MODE"]),
        # what is no longer declared is code
        ("data=[{path: more}]", ["code", "data/data/train.bin"]),
        ("env={}", ["code", "lockfile"]),
        ("data=[{path: ./data/train.bin}, {path: more/}]", []),
        ("data=[{path: more}, {path: data/train.bin}]", []),
        ("train.working-directory=./pkg/..", []),
        # what is found counts, not what is declared
        (f"data=[{{path: data/train.bin, sha256: {'0' * 64}}}, {{path: more}}]", []),
    ):
        assert names(of(checkout), of(checkout, override)) == expected


def test_a_spec_that_moves_with_its_paths_changes_nothing_else(checkout: Path) -> None:
    place = checkout / "data/train.bin"
    before, override = of(checkout), f"data=[{{path: {place}}}, {{path: more}}]"
    absolute = of(checkout, override)
    place.write_text("e")
    assert names(absolute, of(checkout, override)) == [f"data/{place}"]
    place.write_text("d")
    (checkout / "gate").mkdir()
    (checkout / "repro.yml").unlink()
    moved = re.sub("(?=data/train|more}|requirements)", "../", SPEC)
    (checkout / "gate/repro.yml").write_text(moved)
    assert names(before, of(checkout, folder="gate")) == ["working-directory"]
    assert names(before, of(checkout, "train.working-directory=..", folder="gate")) == []


def test_a_lockfile_that_git_ignores_counts_and_a_pipe_or_a_folder_is_none(checkout: Path) -> None:
    git(checkout, "rm", "-q", "--cached", "requirements.lock")
    (checkout / ".git/info/exclude").write_text("requirements.lock\n")
    before = of(checkout)
    assert before.inputs.recipe["lockfile"] is not None
    (checkout / "requirements.lock").write_text("other")
    assert names(before, of(checkout)) == ["lockfile"]
    for make in (os.mkfifo, os.mkdir):
        (checkout / "requirements.lock").unlink()
        make(checkout / "requirements.lock")
        assert of(checkout).inputs.recipe["lockfile"] is None


def inputs_of(root: Path) -> ConfigHash:
    """The config hash of the checkout at `root`, as `check --inputs` has it."""
    return command.config_hash_of_checkout(load_spec(root), Watch(), cached=False)


def test_check_gives_the_config_hash_that_a_run_gives(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "interpreter_facts", lambda spec, environment, sandbox: FACTS)
    monkeypatch.setattr(evidence, "read_machine", lambda: MACHINE)
    monkeypatch.setenv("OMP_NUM_THREADS", FACTS["threads"])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    found = of(checkout)
    assert inputs_of(checkout) == found
    assert len(found.inputs.recipe) + len(found.inputs.platform) > 25
    image = "sha256:" + "1" * 64
    monkeypatch.setenv(IMAGE_VARIABLE, f"x@{image}")
    in_image = inputs_of(checkout)
    assert in_image.inputs.platform["image"] == image
    monkeypatch.delenv(IMAGE_VARIABLE)
    with (checkout / "repro.yml").open("a") as file:
        file.write("scratch: /no/such/folder\n")  # no run is made here
    assert inputs_of(checkout) == of(checkout)
    assert not [path for path in (tmp_path / "temporary").iterdir() if path.suffix != ".lock"]


def test_there_is_no_config_hash_without_data_or_interpreter(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GateError, match="no `python`"):
        inputs_of(checkout)
    (checkout / "data/train.bin").unlink()
    with pytest.raises(Inconclusive, match=r"data/train\.bin"):
        inputs_of(checkout)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match=r"gone\.py/ cannot be read"):
        code_digest(tmp_path / "gone.py", ())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Inconclusive, match="pipe cannot be read"):
        code_digest(tmp_path, ())
    (tmp_path / "pipe").unlink()

    def digest() -> str:
        return code_digest(tmp_path, ("data", "train.py"))

    write(tmp_path, data__train_dot_bin="d", train_dot_py="print(1)")
    before = digest()
    write(tmp_path, data__train_dot_bin="other", train_dot_py="other")
    assert digest() == before
    (tmp_path / "data2").write_text("")
    assert digest() != before
