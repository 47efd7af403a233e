"""Claims about the digest of the code: what moves it, what does not, and that a shell gives the same figure."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from repro_gate.baseline.inputs import code_digest, code_files, file_digest, read_records
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import Inconclusive
from tests.support.repositories import write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    write(folder, train_dot_py="print(1)", pkg__model_dot_py="x = 1", pkg__deep__er_dot_py="", data__train_dot_bin="d")
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("pkg")
    return folder


def digest(root: Path, *leave_out: str) -> str:
    return code_digest(root, code_files(root), leave_out)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda root: (root / "train.py").write_text("print(2)"),
    "a line ending": lambda root: (root / "train.py").write_bytes(b"print(1)\r"),
    "a file added": lambda root: (root / "new.py").write_text(""),
    "a file removed": lambda root: (root / "pkg/deep/er.py").unlink(),
    "a file renamed": lambda root: (root / "train.py").rename(root / "train2.py"),
    "a file moved": lambda root: (root / "train.py").rename(root / "pkg/train.py"),
    "two files exchanged": lambda root: [
        (root / "train.py").rename(root / "t"),
        (root / "pkg/model.py").rename(root / "train.py"),
        (root / "t").rename(root / "pkg/model.py"),
    ],
    "made executable": lambda root: (root / "train.py").chmod(0o755),
    "no longer executable": lambda root: (root / "run.sh").chmod(0o644),
    "a link to elsewhere": lambda root: [(root / "link").unlink(), (root / "link").symlink_to("data")],
    "a link that became a file": lambda root: [(root / "link").unlink(), (root / "link").write_text("pkg")],
    "a name in another Unicode form": lambda root: (root / "train.py").rename(root / "e\u0301.py"),
    "a name that is not UTF-8": lambda root: (root / "train.py").rename(root / "\udcff.py"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_git_would_show_moves_it(root: Path, change: Callable[[Path], object]) -> None:
    before = digest(root)
    change(root)
    assert digest(root) != before


def test_the_two_unicode_forms_of_one_name_are_two_names(root: Path) -> None:
    (root / "e\u0301.py").write_text("")
    before = digest(root)
    (root / "e\u0301.py").rename(root / "\u00e9.py")
    assert digest(root) != before


def test_times_permissions_empty_folders_and_place_do_not_move_it(root: Path, tmp_path: Path) -> None:
    before = digest(root)
    os.utime(root / "train.py", (1, 1))
    (root / "train.py").chmod(0o600)
    (root / "run.sh").chmod(0o700)
    (root / "pkg").chmod(0o700)
    (root / "empty/below").mkdir(parents=True)
    assert digest(root) == before
    root.rename(tmp_path / "élsewhere")
    assert digest(tmp_path / "élsewhere") == before


def test_the_order_in_which_files_are_listed_does_not_count(root: Path) -> None:
    names = sorted(code_files(root))
    for seed in range(5):
        random.Random(seed).shuffle(names)
        assert code_digest(root, [*names, names[0]], ()) == digest(root)


def test_what_is_left_out_does_not_count_and_what_only_begins_like_it_does(root: Path) -> None:
    before = digest(root, "data", "train.py")
    (root / "data/train.bin").write_text("other")
    (root / "train.py").write_text("other")
    assert digest(root, "data", "train.py") == before
    (root / "data2").write_text("")
    assert digest(root, "data", "train.py") != before


def test_a_shell_gives_the_same_digest(root: Path) -> None:
    script = r"""
        printf 'repro-gate/code/v1\0'
        find . ! -type d -printf '%P\0' | LC_ALL=C sort -z | while IFS= read -r -d '' path; do
            if [ -L "$path" ]; then kind=link; sum=$(printf %s "$(readlink "$path")" | sha256sum)
            elif [ -x "$path" ]; then kind=executable; sum=$(sha256sum < "$path")
            else kind=file; sum=$(sha256sum < "$path"); fi
            printf '%s %s  %s\0' "$kind" "${sum%% *}" "$path"
        done
    """
    done = subprocess.run(["bash", "-c", f"({script}) | sha256sum"], cwd=root, check=True, capture_output=True, text=True)
    assert digest(root) == f"sha256:{done.stdout.split()[0]}"


def test_a_file_that_is_gone_is_said(root: Path) -> None:
    with pytest.raises(Inconclusive, match=r"gone\.py cannot be read") as caught:
        code_digest(root, ["gone.py"], ())
    assert caught.value.remedy


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match="cannot be listed"):
        list(code_files(tmp_path / "gone"))


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        file_digest(tmp_path / "pipe")


def test_what_was_read_ahead_of_time_gives_the_same_digest(root: Path) -> None:
    snapshot, late = (Snapshot(root=root, source=root, files=5, bytes=9) for _ in range(2))
    read_records(snapshot, 60)
    read_records(late, -1)
    assert len(snapshot.records) == 6 and late.records == {}
    assert code_digest(root, code_files(root), ["data"], snapshot.records) == digest(root, "data")
    before = digest(root)
    (root / "train.py").write_text("print(2)")
    assert code_digest(root, code_files(root), (), snapshot.records) == before != digest(root), "it is not read again"


def test_what_cannot_be_read_ahead_of_time_is_told_when_the_digest_is_made(root: Path) -> None:
    os.mkfifo(root / "pipe")
    snapshot = Snapshot(root=root, source=root, files=5, bytes=9)
    read_records(snapshot, 60)
    with pytest.raises(Inconclusive, match="pipe"):
        code_digest(root, code_files(root), (), snapshot.records)
    read_records(Snapshot(root=root / "gone", source=root, files=0, bytes=0), 60)
