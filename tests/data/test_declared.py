"""Claims about declared data: checksums, and writes to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.declared_data import changed_data, read_data_state, verify_data
from repro_gate.spec.model import DataItem
from tests.repositories import write


def test_a_file_has_the_sha256_of_its_bytes(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    items = DataItem("a", digest), DataItem("./a", "0" * 64), DataItem(str(tmp_path / "a")), DataItem("b", "0" * 64)
    good, bad, undeclared, missing = verify_data(items, tmp_path)
    assert (good.matches, good.size, bad.matches, undeclared.matches) == (True, 3, False, None)
    assert undeclared.actual == good.actual
    assert missing.actual is None and missing.matches is False and missing.problem == "b does not exist"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU tools")
def test_a_folder_has_the_digest_that_a_shell_gives(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(tmp_path, data__b="1", data__a__z="2", data__a_dot_x="3", outside="4")
    (data / "line\nbreak").write_text("5")
    (data / os.fsdecode(b"\xff")).write_text("6")
    (data / "link").symlink_to("../outside")
    (data / "empty").mkdir()
    command = r"find -L . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0r sha256sum -z -- | sha256sum"
    expected = subprocess.run(["bash", "-c", command], cwd=data, check=True, capture_output=True, text=True).stdout[:64]
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
    assert changed_data(before, read_data_state(items, tmp_path)) == ("data/b", "data/c", "one", "two")
