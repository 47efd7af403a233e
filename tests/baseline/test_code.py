"""Claims about the digest of the code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from repro_gate.baseline.inputs import code_digest, code_files
from repro_gate.errors import Inconclusive
from tests.support.repositories import write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    write(folder, train_dot_py="print(1)", pkg__model_dot_py="x = 1", **{"e\u0301.py": ""})
    write(folder, data__train_dot_bin="d", run_dot_sh="#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg")
    return folder


def digest(root: Path, *leave_out: str) -> str:
    return code_digest(root, code_files(root), leave_out)


CHANGES = {  # a shell command each
    "a line ending": "printf 'print(1)\\r' > train.py",
    "a file moved": "mv train.py pkg",
    "two files exchanged": "mv train.py t; mv pkg/model.py train.py; mv t pkg/model.py",
    "no longer executable": "chmod 644 run.sh",
    "a link to elsewhere": "ln -sfn data link",
    "a link that became a file": "rm link; printf pkg > link",
    "a name in another Unicode form": "mv e\u0301.py \u00e9.py",
    "a name that is not UTF-8": "mv train.py $(printf '\\377').py",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_git_would_show_moves_it(root: Path, change: str) -> None:
    before = digest(root)
    subprocess.run(["sh", "-c", change], cwd=root, check=True)
    assert digest(root) != before


def test_what_is_left_out_does_not_count_and_what_only_begins_like_it_does(root: Path) -> None:
    before = digest(root, "data", "train.py")
    write(root, data__train_dot_bin="other", train_dot_py="other")
    assert digest(root, "data", "train.py") == before
    (root / "data2").write_text("")
    assert digest(root, "data", "train.py") != before


def test_a_file_that_is_gone_is_named_and_a_pipe_is_not_waited_for(root: Path) -> None:
    with pytest.raises(Inconclusive, match=r"gone\.py cannot be read"):
        code_digest(root, ["gone.py"], ())
    with pytest.raises(Inconclusive, match="cannot be listed"):
        list(code_files(root / "gone"))
    os.mkfifo(root / "pipe")
    with pytest.raises(Inconclusive, match="pipe cannot be read"):
        digest(root)
