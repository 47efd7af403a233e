"""Claims about declared data: checksums, and writes to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.data import hashing
from repro_gate.data.declared import changed_data, read_data_state, verify_data
from repro_gate.data.tree import Listing
from repro_gate.spec.model import DataItem
from tests.support.repositories import write


def test_a_file_has_the_sha256_of_its_bytes(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    items = (
        DataItem("a", digest),
        DataItem("./a", "0" * 64),
        DataItem(str(tmp_path / "a")),
        DataItem("b", "0" * 64),
    )
    good, bad, undeclared, missing = verify_data(items, tmp_path)
    assert (good.matches, good.size, bad.matches, undeclared.matches) == (True, 3, False, None)
    assert undeclared.actual == good.actual
    assert (
        missing.actual is None
        and missing.matches is False
        and missing.problem == "b does not exist"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU tools")
def test_a_folder_has_the_digest_that_a_shell_gives(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(tmp_path, data__b="1", data__a__z="2", data__a_dot_x="3", outside="4")
    (data / "line\nbreak").write_text("5")
    (data / os.fsdecode(b"\xff")).write_text("6")
    (data / "link").symlink_to("../outside")
    (data / "empty").mkdir()
    command = (
        r"find -L . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0r sha256sum -z -- | "
        r"sha256sum"
    )
    expected = subprocess.run(
        ["bash", "-c", command], cwd=data, check=True, capture_output=True, text=True
    ).stdout[:64]
    (finding,) = verify_data((DataItem("data", expected),), tmp_path)
    assert finding.matches and (finding.files, finding.size) == (6, 6)


def test_a_loop_of_links_and_a_pipe_are_problems_not_hangs(tmp_path: Path) -> None:
    write(tmp_path, data__a="1")
    (tmp_path / "data/loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    for finding in verify_data((DataItem("data"), DataItem("pipe")), tmp_path):
        assert finding.actual is None and "cannot be read" in finding.problem


def test_a_write_to_declared_data_is_named(tmp_path: Path) -> None:
    write(tmp_path, data__a="1", data__b="2", one="3", two="4")
    items = (DataItem("data"), DataItem("one"), DataItem("two"))
    before = read_data_state(items, tmp_path)
    assert changed_data(before, read_data_state(items, tmp_path)) == ()
    write(tmp_path, data__c="5")
    (tmp_path / "data/b").unlink()
    os.utime(tmp_path / "one", ns=(1, 1))
    (tmp_path / "two").unlink()
    assert changed_data(before, read_data_state(items, tmp_path)) == (
        "data/b",
        "data/c",
        "one",
        "two",
    )


def test_every_declared_digest_and_the_size_must_be_true(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    sha, md5 = hashlib.sha256(b"abc").hexdigest(), hashlib.md5(b"abc").hexdigest()
    items = (
        DataItem("a", sha, md5, 3, "a.dvc:2"),
        DataItem("a", sha, "0" * 32, 3),
        DataItem("a", sha, md5, 4),
        DataItem("a", None, md5),
        DataItem("a", None, None, 4),
        DataItem("a", None, None, 3),
        DataItem("gone", sha, md5, 3),
    )
    good, wrong_md5, wrong_size, only_md5, undeclared_wrong, undeclared, gone = verify_data(
        items, tmp_path
    )
    assert (good.matches, good.mismatches, good.source, good.md5_actual, good.actual) == (
        True,
        (),
        "a.dvc:2",
        md5,
        sha,
    )
    assert (wrong_md5.matches, wrong_md5.mismatches) == (
        False,
        (f"a: md5 expected {'0' * 32}, found {md5}",),
    )
    assert (wrong_size.matches, wrong_size.mismatches) == (
        False,
        ("a: size expected 4 bytes, found 3",),
    )
    assert only_md5.matches is True and only_md5.declared and only_md5.expected is None
    assert (
        undeclared_wrong.matches is False and undeclared.matches is None and not undeclared.declared
    )
    assert (gone.matches, gone.mismatches) == (False, ("gone does not exist",))


def test_a_wrong_sha256_says_both(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    (finding,) = verify_data((DataItem("a", "0" * 64),), tmp_path)
    assert finding.mismatches == (
        f"a: sha256 expected {'0' * 64}, found {hashlib.sha256(b'abc').hexdigest()}",
    )


def test_a_folder_of_dvc_is_compared_with_dvcs_md5(tmp_path: Path) -> None:
    write(tmp_path, data__a="foo", data__b="bar")
    listing = (
        '[{"md5": "acbd18db4cc2f85cedef654fccc4a4d8", "relpath": "a"}, {"md5": '
        '"37b51d194a7513e45b56f6524f2d51f2", "relpath": "b"}]'
    )
    md5 = hashlib.md5(listing.encode()).hexdigest() + ".dir"
    items = (
        DataItem("data", None, md5, 6),
        DataItem("data", None, md5.removesuffix(".dir")),
        DataItem("data", None, md5, 7),
    )
    good, of_a_file, wrong_size = verify_data(items, tmp_path)
    assert (good.matches, good.md5_actual) == (True, md5)
    assert of_a_file.matches is False
    # the listing names every file that DVC counts; others, such as `.git`, may lie beside them
    assert wrong_size.matches is True
    (tmp_path / "data/b").write_text("baz")
    assert verify_data(items[:1], tmp_path)[0].matches is False


def test_a_folder_that_dvc_sees_through_patterns_is_said_to_be_unverified(tmp_path: Path) -> None:
    write(tmp_path, data__a="foo", _dot_dvcignore="# nothing\n\n")
    (wrong,) = verify_data((DataItem("data", None, "0" * 32 + ".dir"),), tmp_path)
    assert "md5 expected" in wrong.mismatches[0]
    write(tmp_path, _dot_dvcignore="# tmp\n*.tmp\n")
    (unknown,) = verify_data((DataItem("data", None, "0" * 32 + ".dir"),), tmp_path)
    assert (
        unknown.matches is False and unknown.md5_actual is None and unknown.actual == wrong.actual
    )
    assert unknown.mismatches == (
        (
            f"data: its md5 cannot be verified, {tmp_path / '.dvcignore'} leaves out files by "
            "patterns that are not read here"
        ),
    )


def test_a_pipe_in_place_of_such_patterns_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, data__a="foo")
    os.mkfifo(tmp_path / ".dvcignore")
    (wrong,) = verify_data((DataItem("data", None, "0" * 32 + ".dir"),), tmp_path)
    assert "md5 expected" in wrong.mismatches[0]


def test_a_file_that_changes_under_the_reader_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, data__a="1", data__sub__b="2", sound="3")
    listed = hashing.list_files

    def then_written(path: Path) -> Listing:
        listing = listed(path)
        if listing.is_folder:
            (path / "sub/b").write_text("longer")
        return listing

    monkeypatch.setattr(hashing, "list_files", then_written)
    changed, sound = verify_data((DataItem("data", "0" * 64), DataItem("sound")), tmp_path)
    assert (changed.problem, changed.actual) == ("data/sub/b changed while it was read", None)
    assert sound.actual == hashlib.sha256(b"3").hexdigest()


def test_the_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "data/sub/link").symlink_to("nowhere")
    (finding,) = verify_data((DataItem("data"),), tmp_path)
    assert (
        finding.problem == "data/sub/link does not exist"
        and finding.mismatches == (finding.problem,)
        and finding.matches is None
    )


def test_what_is_declared_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    told: list[tuple[int, int]] = []
    items = DataItem("a"), DataItem("./a"), DataItem(str(tmp_path / "a"))
    found = verify_data(items, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [finding.path for finding in found] == [item.path for item in items] and len(
        {finding.actual for finding in found}
    ) == 1
    assert told[-1] == (3, 3)


def test_nothing_declared_is_nothing_found(tmp_path: Path) -> None:
    assert verify_data((), tmp_path, progress=lambda done, total: None) == ()


def test_times_beyond_the_clock_do_not_stop_the_reading(tmp_path: Path) -> None:
    write(tmp_path, old="1", new="2")
    os.utime(tmp_path / "old", (-(2**33), -(2**33)))
    os.utime(tmp_path / "new", (2**33, 2**33))
    assert all(
        finding.actual for finding in verify_data((DataItem("old"), DataItem("new")), tmp_path)
    )
