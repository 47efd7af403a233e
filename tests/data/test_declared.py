"""Claims about declared data: checksums, and writes to it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.data.declared import changed_data, read_data_state, verify_data
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Location
from tests.support.repositories import write

SHA, MD5 = hashlib.sha256(b"abc").hexdigest(), hashlib.md5(b"abc").hexdigest()


@pytest.mark.parametrize(
    ("item", "wrong"),
    [
        (DataItem("./a", "0" * 64), (f"./a: sha256 expected {'0' * 64}, found {SHA}",)),
        (DataItem("a", SHA, MD5, ("a.dvc", 2)), ()),
        (DataItem("a", SHA, "0" * 32), (f"a: md5 expected {'0' * 32}, found {MD5}",)),
        (DataItem("a", None, MD5), ()),
        (DataItem("a"), ()),
        (DataItem("b"), ("b does not exist",)),
        (DataItem("broken"), ("broken/sub/link does not exist",)),
    ],
)
def test_every_declared_digest_must_be_true(
    tmp_path: Path, item: DataItem, wrong: tuple[str, ...]
) -> None:
    write(tmp_path, a="abc")
    (tmp_path / "broken/sub").mkdir(parents=True)
    (tmp_path / "broken/sub/link").symlink_to("nowhere")
    (found,) = verify_data((item,), tmp_path)
    source = None if item.source is None else Location(*item.source)
    assert (found.mismatches, found.source) == (wrong, source)
    assert found.actual == (SHA if item.path in ("a", "./a") else None)


def test_a_loop_of_links_and_a_pipe_are_problems_not_hangs(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    loop, pipe = verify_data((DataItem("."), DataItem("pipe")), tmp_path)
    assert loop.actual is None and "leads back to a folder above it" in loop.problem
    assert pipe.actual is None and "cannot be read" in pipe.problem


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU tools")
def test_a_folder_has_the_digest_that_a_shell_gives(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(tmp_path, data__b="1", data__a__z="2", data__a_dot_x="3", outside="4")
    (data / "line\nbreak").write_text("5")
    (data / os.fsdecode(b"\xff")).write_text("6")
    (data / "link").symlink_to("../outside")
    (data / "empty").mkdir()
    command = (
        r"find -L . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0r sha256sum -z | sha256sum"
    )
    expected = subprocess.run(
        ["bash", "-c", command], cwd=data, check=True, capture_output=True, text=True
    ).stdout[:64]
    (finding,) = verify_data((DataItem("data", expected),), tmp_path)
    assert not finding.mismatches and finding.size == 6


def test_a_write_to_declared_data_is_named_and_a_link_to_it_is_none(tmp_path: Path) -> None:
    write(tmp_path, data__a="1", data__b="2", one="3", two="4")
    items = (DataItem("data"), DataItem("one"), DataItem("two"))
    before = read_data_state(items, tmp_path)
    os.link(tmp_path / "one", tmp_path / "workspace")
    assert changed_data(before, read_data_state(items, tmp_path)) == ()
    write(tmp_path, data__c="5")
    (tmp_path / "data/b").unlink()
    os.utime(tmp_path / "one", ns=(1, 1))
    (tmp_path / "two").unlink()
    found = changed_data(before, read_data_state(items, tmp_path))
    assert found == ("data/b", "data/c", "one", "two")


def test_a_folder_of_dvc_is_compared_with_the_md5_of_dvcs_listing(tmp_path: Path) -> None:
    write(tmp_path, data__a="foo", data__sub__b="bar", data__é="foo", outside__c="left out")
    write(tmp_path, data___dot_git__config="left out")
    (tmp_path / "data" / os.fsdecode(b"\xff")).write_text("bar")
    (tmp_path / "data/𝄞").write_text("bar")
    (tmp_path / "data/linked").symlink_to("../outside")
    foo, bar = "acbd18db4cc2f85cedef654fccc4a4d8", "37b51d194a7513e45b56f6524f2d51f2"
    names = {"a": foo, "sub/b": bar, "é": foo, os.fsdecode(b"\xff"): bar, "𝄞": bar}
    listing = [{"md5": md5, "relpath": name} for name, md5 in sorted(names.items())]
    md5 = hashlib.md5(json.dumps(listing).encode()).hexdigest() + ".dir"
    items = (DataItem("data", None, md5), DataItem("data", None, md5.removesuffix(".dir")))
    assert [not item.mismatches for item in verify_data(items, tmp_path)] == [True, False]
    (tmp_path / "data/sub/b").write_text("baz")
    assert verify_data(items[:1], tmp_path)[0].mismatches


def test_what_is_declared_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    told: list[tuple[int, int]] = []
    items = DataItem("a"), DataItem("./a"), DataItem(str(tmp_path / "a"))
    found = verify_data(items, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [(item.path, item.actual) for item in found] == [(item.path, SHA) for item in items]
    assert told[-1] == (3, 3)
    assert verify_data((), tmp_path, progress=lambda done, total: None) == ()
