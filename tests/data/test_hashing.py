"""Hashing: the same digests whatever the threads, a change under way seen, an end on interrupt."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from repro_gate.data import hashing
from repro_gate.data.hashing import (
    Listing,
    digest_file,
    dvc_md5,
    identity,
    list_files,
    read_digests,
    tree_sha256,
)
from tests.support.repositories import write

MIB = 1 << 20
KINDS = ("sha256", "md5")


def many_files(folder: Path, large: int = 0) -> Listing:
    for number in range(300):
        write(folder, **{f"{number % 7}__{number}": "x" * number})
    for number in range(large):
        (folder / f"large-{number}").write_bytes(os.urandom(MIB + number))
    return list_files(folder)


def digests(root: Path, listing: Listing, kind: str) -> list[bytes]:
    return [
        hashlib.new(kind, (root / os.fsdecode(name)).read_bytes()).digest()
        for name, _ in listing.files
    ]


def test_threads_digest_and_tell_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = hashing.list_files

    def then_removed(path: Path) -> Listing:
        listing = listed(path)
        if path.name == "broken":
            (path / "3/10").unlink()
        return listing

    monkeypatch.setattr(hashing, "list_files", then_removed)
    sound, told = many_files(tmp_path / "sound", large=2), list[tuple[int, int]]()
    many_files(tmp_path / "broken")
    asked = [(tmp_path / "broken", ("sha256",)), (tmp_path / "sound", KINDS)]
    bad, good = read_digests(asked, lambda *done: told.append(done)).values()
    assert (bad.failed, bad.problem, bad.digests) == ("3/10", "does not exist", {})
    assert good.digests == {
        "sha256": tree_sha256(sound, digests(tmp_path / "sound", sound, "sha256")),
        "md5": dvc_md5(sound, digests(tmp_path / "sound", sound, "md5")),
    }
    read_digests([(tmp_path / "sound", KINDS)], lambda *done: told.append(done))
    assert told[-1] == (good.size, good.size)

    def broken(*_: object) -> list[bytes]:
        raise MemoryError

    monkeypatch.setattr(hashing, "digest_file", broken)
    with pytest.raises(MemoryError):  # what goes wrong in a thread
        read_digests([(tmp_path / "sound", ("sha256",))])


def test_a_file_is_read_whole_at_any_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size in (0, MIB, MIB + 1):
        path.write_bytes(os.urandom(size))
        pieces: list[int] = []
        found = digest_file(path, identity(os.stat(path)), KINDS, pieces.append)
        assert found == [hashlib.new(kind, path.read_bytes()).digest() for kind in KINDS]
        assert sum(pieces) == size


def test_a_file_that_changes_before_or_between_two_pieces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(2 * MIB))
    before = identity(os.stat(path))
    for change in (
        lambda _: os.utime(path, ns=(1, 1)),
        lambda _: path.write_bytes(bytes(2 * MIB + 1)),
        lambda _: path.write_bytes(bytes(2 * MIB - 1)),
        lambda _: (path.unlink(), os.mkfifo(path)),
    ):
        with pytest.raises(OSError, match="changed while it was read"):
            digest_file(path, before, KINDS, change)
    for known in (before, identity(os.stat(path))):
        with pytest.raises(OSError, match="changed while it was read"):
            digest_file(path, known, KINDS)


def test_an_interrupt_ends_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_PROGRESS_EVERY", 0.0)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 << 30)  # a minute and more to read

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()  # those of other tests' libraries
    with pytest.raises(KeyboardInterrupt):
        read_digests([(tmp_path, KINDS)], interrupt)
    assert threading.active_count() == before


def test_what_links_lead_to_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that double at each level would make a few folders a million."""
    write(tmp_path, a__b="")
    (tmp_path / "again").symlink_to("a")
    monkeypatch.setattr(hashing, "MAX_FOLDERS", 3)
    monkeypatch.setattr(hashing, "MAX_FILES", 2)
    assert [name for name, _ in list_files(tmp_path).files] == [b"a/b", b"again/b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="more than 3 folders lie below"):
        list_files(tmp_path)
    (tmp_path / "empty").rmdir()
    write(tmp_path, last="")
    with pytest.raises(OSError, match="more than 2 files lie below"):
        list_files(tmp_path)
