"""What `.dvc` files stand for, and what is refused in them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from repro_gate.data.declared import verify_data
from repro_gate.data.dvc import MAX_DVC, DataProblem, expand_items
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Location
from tests.support.repositories import write

ABC_MD5 = hashlib.md5(b"abc").hexdigest()


def expanded(folder: Path, *paths: str) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    return expand_items([DataItem(path) for path in paths], folder)


def test_a_dvc_file_stands_for_its_outs(tmp_path: Path) -> None:
    write(tmp_path, data__train_dot_bin="abc", data__sub__x="abc")
    (tmp_path / "data/train.bin.dvc").write_text(
        f"outs:\n- md5: {ABC_MD5}\n  size: 3\n  hash: md5\n  path: train.bin\n"
    )
    (tmp_path / "data/more.dvc").write_text(
        f"wdir: sub\nouts:\n- {{path: x, md5: {ABC_MD5}, hash: md5}}\n- {{path: ../train.bin}}\n"
    )
    items, problems = expanded(tmp_path, "data/train.bin.dvc", "./data/more.dvc")
    assert items == (
        DataItem("data/train.bin", None, ABC_MD5, ("data/train.bin.dvc", 2)),
        DataItem("data/sub/x", None, ABC_MD5, ("./data/more.dvc", 3)),
        DataItem("data/train.bin", None, None, ("./data/more.dvc", 4)),
    )
    assert problems == ()
    assert not any(finding.mismatches for finding in verify_data(items, tmp_path))
    assert expand_items(items[:2], tmp_path) == (items[:2], ())


HASHED = "outs:\n- path: a\n  md5: "


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HASHED + "abc\n  hash: md5\n", 3, "no md5 as DVC 3 takes it"),
        (HASHED + "a" * 32 + "\n", 3, "no md5"),
        ("outs:\n- path: /etc/passwd\n", 2, "leads out of the checkout"),
        ("outs:\n- path: ../../x\n", 2, "leads out of the checkout"),
        ("wdir: /etc\nouts:\n- path: passwd\n", 3, "leads out of the checkout"),
        ("outs:\n- md5: " + "a" * 32 + "\n", 2, "an out without a path"),
        ('outs:\n- path: "\\0"\n', 2, "holds a character"),
        ("", 1, "names no outs"),
        ("outs: [\n", 2, ""),
        ("outs:\n- !!python/object:os.system {path: a}\n", 2, "is not supported"),
        ("outs: " + "[" * 5000, 1, "nested deeper than"),
    ],
)
def test_a_wrong_dvc_file_has_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.dvc").write_text(text)
    (problem,) = expanded(tmp_path, "sub/a.dvc")[1]
    assert problem.location == Location("sub/a.dvc", line)
    assert said in problem.message and problem.remedy


def test_an_md5_of_digits_alone_is_text(tmp_path: Path) -> None:
    digits = "12345678901234567890123456e00001"
    (tmp_path / "a.dvc").write_text(f"outs:\n- path: a\n  md5: {digits}\n  hash: md5\n")
    assert expanded(tmp_path, "a.dvc") == ((DataItem("a", None, digits, ("a.dvc", 3)),), ())


def test_only_the_dvc_file_itself_declares(tmp_path: Path) -> None:
    write(tmp_path, a_dot_dvc=f"outs:\n- {{path: a, md5: {ABC_MD5}, hash: md5}}\n")
    assert expanded(tmp_path, "a") == ((DataItem("a"),), ())


def test_the_checkout_is_the_bound_and_outside_it_a_files_own_folder(tmp_path: Path) -> None:
    (tmp_path / "in/.git").mkdir(parents=True)
    inside, leaving = "outs:\n- path: ../data\n", "outs:\n- path: ../../data\n"
    write(tmp_path / "in", specs__a_dot_dvc=inside, specs__b_dot_dvc=leaving)
    items, (problem,) = expanded(tmp_path / "in/specs", "a.dvc", "b.dvc")
    assert items == (DataItem("../data", source=("a.dvc", 2)),)
    assert problem.location == Location("b.dvc", 2)
    (tmp_path / "link").symlink_to("in")
    through = expand_items([DataItem("a.dvc")], tmp_path / "link/specs", tmp_path / "in")
    assert through[0] == items
    write(tmp_path, far__a_dot_dvc="outs:\n- path: x\n", far__b_dot_dvc=inside)
    names = [str(tmp_path / f"far/{name}.dvc") for name in "ab"]
    items, (problem,) = expanded(tmp_path / "in", *names)
    assert [item.path for item in items] == [str(tmp_path / "far/x")]
    assert problem.location == Location(names[1], 2)


def test_what_is_no_readable_file_is_a_problem_not_a_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.dvc")
    (tmp_path / "large.dvc").write_bytes(b"#" * (MAX_DVC + 1))
    (tmp_path / "folder.dvc").mkdir()
    items, problems = expanded(tmp_path, "pipe.dvc", "large.dvc", "gone.dvc", "folder.dvc")
    assert items == (DataItem("folder.dvc"),)
    assert [(problem.location.file, problem.message.partition(",")[0]) for problem in problems] == [
        ("pipe.dvc", "is not a regular file"),
        ("large.dvc", "is larger than 1048576 bytes"),
        ("gone.dvc", "is not there"),
    ]


@pytest.mark.parametrize("target", ["../secret.yml", ".git/config"])
def test_a_dvc_file_that_leads_out_of_the_checkout_is_not_read(tmp_path: Path, target: str) -> None:
    """What is wrong with one is told in its own words."""
    secret = "outs:\n- path: words-of-somebody://x\n"
    (tmp_path / "secret.yml").write_text(secret)
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(secret)
    (folder / "a.csv").write_text("abc")
    (folder / "a.csv.dvc").symlink_to(target)
    for declared in ("a.csv.dvc", f"/proc/self/root{folder}/a.csv.dvc"):
        (problem,) = expanded(folder, declared)[1]
        assert "is a link to a file that" in problem.message
        assert "of-somebody" not in str(problem), declared
    # it may be a link inside the checkout, or lie outside it
    for real in (folder / "real.dvc", tmp_path / "far.dvc"):
        real.write_text(f"outs:\n- path: a.csv\n  md5: {ABC_MD5}\n  hash: md5\n")
    (folder / "link.dvc").symlink_to("real.dvc")
    items, problems = expanded(folder, "link.dvc", str(tmp_path / "far.dvc"))
    assert not problems and [item.md5 for item in items] == [ABC_MD5, ABC_MD5]
