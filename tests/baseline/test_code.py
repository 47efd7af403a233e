"""Claims about the digest of the code: what moves it and what does not. That a shell gives the same
figure is shown in test_page."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from repro_gate.baseline.inputs import code_digest, code_files
from repro_gate.errors import Inconclusive
from tests.support.repositories import write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    write(
        folder,
        train_dot_py="print(1)",
        pkg__model_dot_py="x = 1",
        **{"e\u0301.py": ""},
        data__train_dot_bin="d",
        run_dot_sh="#!/bin/sh",
    )
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg")
    return folder


def digest(root: Path, *leave_out: str) -> str:
    return code_digest(root, code_files(root), leave_out)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a line ending": lambda root: (root / "train.py").write_bytes(b"print(1)\r"),
    "a file moved": lambda root: (root / "train.py").rename(root / "pkg/train.py"),
    "two files exchanged": lambda root: [
        (root / "train.py").rename(root / "t"),
        (root / "pkg/model.py").rename(root / "train.py"),
        (root / "t").rename(root / "pkg/model.py"),
    ],
    "no longer executable": lambda root: (root / "run.sh").chmod(0o644),
    "a link to elsewhere": lambda root: [
        (root / "link").unlink(),
        (root / "link").symlink_to("data"),
    ],
    "a link that became a file": lambda root: [
        (root / "link").unlink(),
        (root / "link").write_text("pkg"),
    ],
    "a name in another Unicode form": lambda root: (root / "e\u0301.py").rename(root / "\u00e9.py"),
    "a name that is not UTF-8": lambda root: (root / "train.py").rename(root / "\udcff.py"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_git_would_show_moves_it(root: Path, change: Callable[[Path], object]) -> None:
    before = digest(root)
    change(root)
    assert digest(root) != before


def test_permissions_empty_folders_place_and_order_do_not_move_it(
    root: Path, tmp_path: Path
) -> None:
    before, names = digest(root), sorted(code_files(root))
    random.Random(1).shuffle(names)
    assert code_digest(root, [*names, names[0]], ()) == before
    for name, mode in (("train.py", 0o600), ("run.sh", 0o700), ("pkg", 0o700)):
        (root / name).chmod(mode)
    (root / "empty/below").mkdir(parents=True)
    root.rename(tmp_path / "élsewhere")
    assert digest(tmp_path / "élsewhere") == before


def test_what_is_left_out_does_not_count_and_what_only_begins_like_it_does(root: Path) -> None:
    before = digest(root, "data", "train.py")
    write(root, data__train_dot_bin="other", train_dot_py="other")
    assert digest(root, "data", "train.py") == before
    (root / "data2").write_text("")
    assert digest(root, "data", "train.py") != before


def test_a_file_or_folder_that_is_gone_is_named_and_a_pipe_is_not_waited_for(root: Path) -> None:
    with pytest.raises(Inconclusive, match=r"gone\.py cannot be read"):
        code_digest(root, ["gone.py"], ())
    with pytest.raises(Inconclusive, match="cannot be listed"):
        list(code_files(root / "gone"))
    os.mkfifo(root / "pipe")
    with pytest.raises(Inconclusive, match="pipe cannot be read"):
        digest(root)
