"""Claims about declarations: what `.dvc` files stand for, and what is refused in them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from repro_gate.data.declarations import MAX_DVC, expand_items
from repro_gate.data.declared import verify_data
from repro_gate.data.formats import DataProblem
from repro_gate.spec.model import DataItem
from tests.support.repositories import write

ABC_MD5 = hashlib.md5(b"abc").hexdigest()


def expanded(folder: Path, *paths: str) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    return expand_items([DataItem(path) for path in paths], folder)


def the_problem(folder: Path, path: str) -> DataProblem:
    (problem,) = expanded(folder, path)[1]
    return problem


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
        DataItem("data/train.bin", None, ABC_MD5, 3, "data/train.bin.dvc:2"),
        DataItem("data/sub/x", None, ABC_MD5, None, "./data/more.dvc:3"),
        DataItem("data/train.bin", None, None, None, "./data/more.dvc:4"),
    )
    assert problems == ()
    assert [finding.matches for finding in verify_data(items, tmp_path)] == [True, True, None]


def test_an_md5_of_digits_alone_is_still_text(tmp_path: Path) -> None:
    for digits in ("1" * 32, "0" * 32, "12345678901234567890123456e00001"):
        (tmp_path / "a.dvc").write_text(f"outs:\n- md5: {digits}\n  path: a\n  hash: md5\n")
        ((item,), problems) = expanded(tmp_path, "a.dvc")
        assert item.md5 == digits and problems == ()


def test_an_item_without_a_digest_takes_it_from_the_dvc_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, d__a="abc", other="x", other_dot_dvc="outs:\n- path: d\n")
    (tmp_path / "d.dvc").write_text(f"outs:\n- path: d\n  md5: {'1' * 32}.dir\n  hash: md5\n")
    ((item,), problems) = expanded(tmp_path, "d/")
    assert (item, problems) == (DataItem("d/", None, "1" * 32 + ".dir", None, "d.dvc:3"), ())
    assert expand_items([DataItem("d", "a" * 64)], tmp_path) == ((DataItem("d", "a" * 64),), ())
    (items, (problem,)) = expanded(tmp_path, "other")
    assert (
        items == (DataItem("other"),)
        and problem.where == "other.dvc:1"
        and "does not declare other" in problem.message
    )


@pytest.mark.parametrize(
    ("text", "line", "kind", "said"),
    [
        (
            "outs:\n- path: a\n  md5: abc\n  hash: md5\n",
            3,
            "digest",
            "md5 has 3 characters, wanted 32 hex digits: abc",
        ),
        ("outs:\n- path: a\n  md5: " + "g" * 32 + "\n  hash: md5\n", 3, "digest", "no hex digits"),
        (
            "outs:\n- path: a\n  md5: " + "a" * 32 + "\n  hash: sha3\n",
            4,
            "digest",
            "`hash: sha3` is unknown",
        ),
        ("outs:\n- path: a\n  md5: " + "a" * 32 + "\n", 3, "digest", "this md5 is of DVC 2"),
        (
            "outs:\n- path: a\n  hash: md5\n  files: [{relpath: b, md5: c}]\n",
            4,
            "declaration",
            "only `files`",
        ),
        ("outs:\n- path: a\n  etag: " + "a" * 32 + "\n", 3, "declaration", "only `etag`"),
        (
            "outs:\n- path: /etc/passwd\n  md5: " + "a" * 32 + "\n  hash: md5\n",
            3,
            "declaration",
            "leads out of the checkout",
        ),
        ("outs:\n- path: ../../x\n", 2, "declaration", "leads out of the checkout"),
        ("wdir: /etc\nouts:\n- path: passwd\n", 3, "declaration", "leads out of the checkout"),
        ("outs:\n- path: s3://bucket/a\n", 2, "declaration", "is not on this machine"),
        ("outs:\n- md5: " + "a" * 32 + "\n", 2, "declaration", "an out without a path"),
        ("outs: []\n", 1, "declaration", "names no outs"),
        ("deps: [x]\n", 1, "declaration", "names no outs"),
        ("", 1, "declaration", "names no outs"),
        ("outs: [\n", 2, "declaration", "cannot be read"),
        ("outs:\n- !!python/object:os.system {path: a}\n", 2, "declaration", "is not supported"),
        (
            "a: &a [1, 2]\nb: [" + "*a, " * 9000 + "]\n",
            2,
            "declaration",
            "aliases are not supported",
        ),
        ("outs: [" + "1, " * 10_000 + "]\n", 1, "declaration", "more than 10,000 values"),
        ("outs: " + "[" * 5000, 1, "declaration", "nested deeper than"),
    ],
)
def test_a_wrong_dvc_file_is_a_problem_with_its_line(
    tmp_path: Path, text: str, line: int, kind: str, said: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.dvc").write_text(text)
    problem = the_problem(tmp_path, "sub/a.dvc")
    assert (problem.where, problem.kind) == (f"sub/a.dvc:{line}", kind)
    assert said in problem.message and problem.remedy


def test_the_checkout_is_the_bound_not_the_folder_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(
        tmp_path,
        specs__a_dot_dvc="outs:\n- path: ../data\n",
        specs__b_dot_dvc="outs:\n- path: ../../data\n",
    )
    items, (problem,) = expanded(tmp_path / "specs", "a.dvc", "b.dvc")
    assert items == (DataItem("../data", source="a.dvc:2"),) and problem.where == "b.dvc:2"
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert expand_items([DataItem("a.dvc")], link / "specs", tmp_path)[0] == items


def test_a_declaration_outside_the_checkout_is_bound_to_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, far__a_dot_dvc="outs:\n- path: x\n- path: ../y\n", near__keep="")
    items, (problem,) = expanded(tmp_path / "near", str(tmp_path / "far/a.dvc"))
    assert [item.path for item in items] == [
        str(tmp_path / "far/x")
    ] and "leads out of" in problem.message


def test_a_sha256_for_a_declaration_is_that_of_its_bytes(tmp_path: Path) -> None:
    text = "outs:\n- path: a\n"
    (tmp_path / "a.dvc").write_text(text)
    good = DataItem("a.dvc", hashlib.sha256(text.encode()).hexdigest())
    assert expand_items([good], tmp_path)[1] == ()
    (problem,) = expand_items([DataItem("a.dvc", "0" * 64)], tmp_path)[1]
    assert f"sha256 expected {'0' * 64}, found {good.sha256}" in problem.message


def test_what_is_no_readable_file_is_a_problem_not_a_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.dvc")
    (tmp_path / "large.dvc").write_bytes(b"#" * (MAX_DVC + 1))
    (tmp_path / "folder.dvc").mkdir()
    items, problems = expanded(tmp_path, "pipe.dvc", "large.dvc", "gone.dvc", "folder.dvc")
    assert items == (DataItem("folder.dvc"),)
    assert [(problem.where, problem.message.partition(",")[0]) for problem in problems] == [
        ("pipe.dvc", "is not a regular file"),
        ("large.dvc", "is larger than 1048576 bytes"),
        ("gone.dvc", "is not there"),
    ]


@pytest.mark.parametrize("target", ["../secret.yml", ".git/config"])
def test_a_dvc_file_that_is_a_link_out_of_the_checkout_is_not_read(
    tmp_path: Path, target: str
) -> None:
    """What is wrong with one is told in its own words."""
    secret = "outs:\n- path: words-of-somebody://x\n"
    (tmp_path / "secret.yml").write_text(secret)
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(secret)
    (folder / "a.csv").write_text("abc")
    (folder / "a.csv.dvc").symlink_to(target)
    for declared in ("a.csv.dvc", "a.csv", f"/proc/self/root{folder}/a.csv.dvc"):
        (problem,) = expanded(folder, declared)[1]
        assert "is a link to a file that" in problem.message and "of-somebody" not in str(
            problem
        ), declared


def test_a_dvc_file_may_be_a_link_inside_the_checkout_or_lie_outside_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / "real.dvc").write_text(f"outs:\n- path: a.csv\n  md5: {ABC_MD5}\n  hash: md5\n")
    (tmp_path / "far.dvc").write_text(f"outs:\n- path: a.csv\n  md5: {ABC_MD5}\n  hash: md5\n")
    (folder / "link.dvc").symlink_to("real.dvc")
    items, problems = expanded(folder, "link.dvc", str(tmp_path / "far.dvc"))
    assert not problems and [item.md5 for item in items] == [ABC_MD5, ABC_MD5]
