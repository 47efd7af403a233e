"""Reading what a run wrote: only that, nothing through a link, never without a bound."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from repro_gate.runs import changed_files as module
from repro_gate.runs.changed_files import changed_files
from repro_gate.runs.process import TAIL_BYTES, TAIL_LINES
from repro_gate.runs.reading import MAX_SECONDS
from repro_gate.sandbox.identity import UID, Sandbox

SAME = Sandbox()


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    (tmp_path / "snapshot/src").mkdir(parents=True)
    (tmp_path / "snapshot/train.py").write_text("1")
    (tmp_path / "snapshot/src/state.json").write_text('{"a": 1}')
    return tmp_path / "snapshot"


def workspace(snapshot: Path) -> Path:
    return Path(shutil.copytree(snapshot, snapshot.parent / "workspace", symlinks=True))


def test_what_was_made_or_changed_is_read_but_for_what_is_declared(snapshot: Path) -> None:
    root = workspace(snapshot)
    assert changed_files(root, snapshot, SAME, ()) == ({}, "")
    (root / "src/state.json").write_text('{"a": 2}')
    os.makedirs(root / "out/__pycache__")
    for name in ("out/a.bin", "out/b.csv", "out/__pycache__/m.pyc"):
        (root / name).write_text("x")
    found, cut = changed_files(root, snapshot, SAME, {"out/a.bin"})
    assert list(found) == ["out/b.csv", "src/state.json"] and not cut
    assert found["out/b.csv"].text == b"x"
    assert [*changed_files(root, snapshot, SAME, ())[0]] == ["out/a.bin", *found]


def test_links_and_pipes_are_left_alone_and_odd_names_are_read(snapshot: Path) -> None:
    root = workspace(snapshot)
    (root / "link").symlink_to("/etc/passwd")
    (root / "folder").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    (root / os.fsdecode(b"\xff.bin")).write_bytes(b"1")
    deep = root
    for _ in range(30):
        deep = deep / ("d" * 100)
        deep.mkdir()
    (deep / "x").write_bytes(b"1")
    found, _ = changed_files(root, snapshot, SAME, ())
    assert [len(os.fsencode(name)) for name in found] == [30 * 101 + 1, 5]


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0,
    reason="a user of its own for the training needs root on Linux",
)
def test_where_training_is_another_user_only_its_own_files_are_read(snapshot: Path) -> None:
    root = workspace(snapshot)
    for folder in (*root.resolve().parents, root):
        if folder.stat().st_uid == os.getuid() and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o755)
    for name in ("own.bin", "roots.bin", "secret.bin", "named.bin"):
        (root / name).write_bytes(b"x")
        os.chown(root / name, UID, UID) if name != "roots.bin" else None
    os.chown(root / "secret.bin", 0, 0)
    (root / "secret.bin").chmod(0o600)
    os.link(root / "named.bin", snapshot.parent / "other-name")
    (root / "shadow").symlink_to("/etc/shadow")
    found, cut = changed_files(root, snapshot, Sandbox(UID), ())
    assert list(found) == ["own.bin"] and not cut


@pytest.mark.parametrize(
    ("limit", "value", "read"),
    [
        ("MAX_FILES", 4, 4),
        ("MAX_FILES", 5, None),
        ("MAX_BYTES", 9, 4),
        ("MAX_BYTES", 10, None),
        ("MAX_SECONDS", 0.0, 0),
        ("MAX_VISITED", 2, 2),
    ],
)
def test_above_a_limit_the_rest_is_left_out_and_said(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, read: int | None
) -> None:
    """Of five files of two bytes that a run made."""
    monkeypatch.setattr(module, limit, value)
    root = workspace(snapshot)
    for number in range(5):
        (root / f"{number}.bin").write_bytes(b"xx")
    found, cut = changed_files(root, snapshot, SAME, ())
    if read is None:
        assert (len(found), cut) == (5, "")
    else:
        assert len(found) <= read and f"only {len(found)} files were looked at" in cut


def test_holes_are_not_read_and_count_for_no_limit(snapshot: Path) -> None:
    root = workspace(snapshot)
    for name, content in (("a.bin", b"x"), ("b.bin", b"x"), ("c.bin", b"y")):
        (root / name).write_bytes(content)
        os.truncate(root / name, 1 << 36)
    found, cut = changed_files(root, snapshot, SAME, ())
    assert not cut and found["a.bin"] == found["b.bin"] != found["c.bin"]


def test_texts_are_kept_up_to_a_limit(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXTS", 10)
    root = workspace(snapshot)
    for name in "abc":
        (root / f"{name}.json").write_text("[1, 2]")
    found, _ = changed_files(root, snapshot, SAME, ())
    assert [item.text for item in found.values()] == [b"[1, 2]", None, None]


def test_the_time_that_numpy_writes_into_an_archive_does_not_count(snapshot: Path) -> None:
    root = workspace(snapshot)
    digests = []
    for number in range(3):
        np.savez(root / "a.npz", w=np.arange(4) + (number == 2))
        os.utime(root / "a.npz", (number, number))
        data = bytearray((root / "a.npz").read_bytes())
        place = data.index(b"PK\x01\x02") + 12  # the time in the directory
        data[place : place + 2] = bytes([number, 0])
        (root / "a.npz").write_bytes(data)
        digests.append(changed_files(root, snapshot, SAME, ())[0]["a.npz"].digest)
    assert digests[0] == digests[1] != digests[2]


def test_the_page_on_what_a_pass_does_not_cover_states_these_limits() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = " ".join((docs / "what-a-pass-does-not-cover.md").read_text(encoding="utf-8").split())
    limits = (
        f"Up to {module.MAX_FILES:,} files, {module.MAX_BYTES // 2**30} GiB and "
        f"{module.MAX_SECONDS:g} seconds for a run"
    )
    assert limits in page and f"the last {TAIL_LINES} lines ({TAIL_BYTES // 1024} KiB)" in page
    assert MAX_SECONDS == 600 and "more than ten minutes (all of a gate run together)" in page
