"""Hashing: the same digests whatever the threads, a change under way seen, an end on interrupt."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from repro_gate.data import hashing
from repro_gate.data.hashing import digest_file, read_digests
from repro_gate.data.tree import Listing, dvc_md5, identity, list_files, tree_sha256
from tests.support.repositories import write

MIB = 1 << 20
KINDS = ("sha256", "md5")


def many_files(folder: Path, large: int = 0) -> Listing:
    for number in range(300):
        write(folder, **{f"{number % 7}__{number}": "x" * number})
    for number in range(large):
        (folder / f"large-{number}").write_bytes(os.urandom(MIB + number))
    return list_files(folder)


def digests(listing: Listing, kind: str) -> list[bytes]:
    return [
        hashlib.new(kind, (listing.root / os.fsdecode(name)).read_bytes()).digest()
        for name, _ in listing.files
    ]


def test_threads_give_the_digests_of_the_files_and_name_the_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        "sha256": tree_sha256(sound, digests(sound, "sha256")),
        "md5": dvc_md5(sound, digests(sound, "md5")),
    }
    read_digests([(tmp_path / "sound", KINDS)], lambda *done: told.append(done))
    assert told[-1] == (good.size, good.size)

    def broken(*_: object) -> list[bytes]:
        raise MemoryError

    monkeypatch.setattr(hashing, "digest_file", broken)
    with pytest.raises(MemoryError):  # what goes wrong in a thread
        read_digests([(tmp_path / "sound", ("sha256",))])


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 3 * MIB + 7])
def test_a_file_is_read_whole_at_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(size))
    told: list[int] = []
    found = digest_file(path, identity(os.stat(path)), KINDS, told.append)
    assert found == [hashlib.new(kind, path.read_bytes()).digest() for kind in KINDS]
    assert sum(told) == size


@pytest.mark.parametrize("size", [3, 2 * MIB])
def test_a_file_that_is_not_what_it_was_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    before = identity(os.stat(path))
    for change in (
        lambda: path.write_bytes(bytes(size + 1)),
        lambda: path.write_bytes(bytes(size - 1)),
        lambda: os.utime(path, ns=(1, 1)),
    ):
        change()
        with pytest.raises(OSError, match="changed while it was read"):
            digest_file(path, before, KINDS)
    path.unlink()
    os.mkfifo(path)
    for known in (before, identity(os.stat(path))):
        with pytest.raises(OSError, match="changed while it was read"):
            digest_file(path, known, KINDS)


def test_a_write_between_two_pieces_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(3 * MIB))
    pieces: list[int] = []

    def write_over(count: int) -> None:
        pieces.append(count)
        if len(pieces) == 2:
            with path.open("r+b") as file:
                file.write(b"x")

    with pytest.raises(OSError, match="changed while it was read"):
        digest_file(path, identity(os.stat(path)), ("sha256",), write_over)


def test_an_interrupt_ends_the_threads_at_their_next_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "_PROGRESS_EVERY", 0.0)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 << 30)  # a minute and more to read

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_digests([(tmp_path, KINDS)], interrupt)
    assert threading.active_count() == 1


def test_a_folder_has_the_md5_of_dvcs_listing(tmp_path: Path) -> None:
    """The figure that DVC 3 gives for `data/` with `a` = "foo" and `sub/b` = "bar" is that of the
    JSON below."""
    write(
        tmp_path,
        data__a="foo",
        data__sub__b="bar",
        data__é="foo",
        data___dot_git__config="left out",
        outside__c="left out",
    )
    (tmp_path / "data" / os.fsdecode(b"\xff")).write_text("bar")
    (tmp_path / "data/𝄞").write_text("bar")
    (tmp_path / "data/linked").symlink_to("../outside")
    (found,) = read_digests([(tmp_path / "data", ("md5",))]).values()
    foo, bar = "acbd18db4cc2f85cedef654fccc4a4d8", "37b51d194a7513e45b56f6524f2d51f2"
    names = {"a": foo, "sub/b": bar, "é": foo, os.fsdecode(b"\xff"): bar, "𝄞": bar}
    files = [{"relpath": name, "md5": md5} for name, md5 in sorted(names.items())]
    whole = hashlib.md5(json.dumps(files, sort_keys=True).encode()).hexdigest()
    assert found.digests["md5"] == whole + ".dir"
