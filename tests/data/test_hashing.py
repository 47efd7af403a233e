"""Claims about hashing: the same digests whoever does the work, a change under way is seen, an interrupt ends everything."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from repro_gate.data import hashing, reader
from repro_gate.data.hashing import Work, digest_all
from repro_gate.data.reader import digest_batch, digest_file, identity
from repro_gate.data.tree import Listing, dvc_md5, entry_name, list_files, tree_sha256
from tests.support.repositories import write

MIB = 1 << 20
KINDS = ("sha256", "md5")


def many_files(folder: Path, large: int = 0) -> Listing:
    for number in range(700):
        write(folder, **{f"{number % 7}__{number}": "x" * number})
    for number in range(large):
        (folder / f"large-{number}").write_bytes(os.urandom(MIB + number))
    return list_files(folder)


def digests(listing: Listing, kind: str) -> bytes:
    return b"".join(hashlib.new(kind, (listing.root / os.fsdecode(entry_name(entry))).read_bytes()).digest() for entry in listing.entries)


@pytest.fixture
def with_children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Children are started for the fewest files, on any machine; the list gets the number of batches that each of them answered."""
    answered: list[int] = []
    monkeypatch.setattr(hashing, "_MANY_FILES", 1)
    monkeypatch.setattr(hashing, "_BATCH_FILES", 16)
    monkeypatch.setattr(hashing, "_parallel", lambda _: 3)
    ask = hashing._Child.ask

    def counted(child: hashing._Child, request: bytes) -> tuple[bytes, bytes]:
        answered.append(child._process.pid if child._process else 0)
        return ask(child, request)

    monkeypatch.setattr(hashing._Child, "ask", counted)
    return answered


def test_children_give_the_digests_that_one_process_gives(tmp_path: Path, with_children: list[int]) -> None:
    listing = many_files(tmp_path, large=2)
    work = Work(listing, KINDS)
    for _ in range(20):  # on a busy machine all may be read before a child has started
        work = Work(listing, KINDS)
        digest_all([work])
        if with_children:
            break
    assert work.error is None and with_children and 0 not in with_children
    for kind in KINDS:
        assert work.digests[kind] == digests(listing, kind)
    alone = Work(listing, KINDS)
    hashing._Hashing([alone], 0).run(0)
    assert alone.digests == work.digests


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_where_no_child_works_the_gate_does_it_itself(
    tmp_path: Path, with_children: list[int], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    listing = many_files(tmp_path)
    work = Work(listing, ("sha256",))
    digest_all([work])
    assert work.error is None and work.digests["sha256"] == digests(listing, "sha256")


def test_a_file_that_fails_in_a_child_is_named(tmp_path: Path, with_children: list[int]) -> None:
    listing = many_files(tmp_path)
    for name in ("3/3", "3/10", "3/17", "3/24"):
        (tmp_path / name).unlink()
    broken, sound = Work(listing, ("sha256",)), Work(many_files(tmp_path / "sound"), ("sha256",))
    digest_all([broken, sound])
    assert isinstance(broken.error, FileNotFoundError) and os.fsdecode(broken.failed).startswith("3/")
    assert sound.error is None and sound.digests["sha256"] == digests(sound.listing, "sha256")


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 3 * MIB + 7])
def test_a_file_is_read_whole_at_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(size))
    told: list[int] = []
    found = digest_file(os.fsencode(path), identity(os.stat(path)), KINDS, told.append)
    assert found == [hashlib.new(kind, path.read_bytes()).digest() for kind in KINDS]
    assert sum(told) == (size if size > MIB else 0)


@pytest.mark.parametrize("size", [3, 2 * MIB])
def test_a_file_that_is_not_what_it_was_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    before = identity(os.stat(path))
    for change in (lambda: path.write_bytes(bytes(size + 1)), lambda: path.write_bytes(bytes(size - 1)), lambda: os.utime(path, ns=(1, 1))):
        change()
        with pytest.raises(OSError, match="changed while it was read"):
            digest_file(os.fsencode(path), before, KINDS)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="changed while it was read"):
        digest_file(os.fsencode(path), before, KINDS)


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
        digest_file(os.fsencode(path), identity(os.stat(path)), ("sha256",), write_over)


def test_the_reader_is_a_program_that_needs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    request = b"sha256\0" + os.fsencode(tmp_path) + b"/\0a\0" + identity(os.stat(tmp_path / "a"))
    message = len(request).to_bytes(4, "little") + request
    command = [sys.executable, "-I", "-S", reader.__file__]
    answer = subprocess.run(command, input=message * 2, cwd="/", check=True, capture_output=True).stdout
    assert answer == ((32).to_bytes(4, "little") + hashlib.sha256(b"abc").digest() + bytes(4)) * 2
    assert digest_batch(request.replace(b"\0a\0", b"\0b\0")) == (b"", b"2\0b\0No such file or directory")


def test_progress_ends_at_the_whole_and_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_TOLD_EVERY", 0.001)
    listing = many_files(tmp_path, large=8)
    told: list[tuple[int, int]] = []
    digest_all([Work(listing, ("sha256",))], lambda done, total: told.append((done, total)), 5, listing.size + 5)
    assert told == sorted(told) and told[0][0] >= 5
    assert told[-1] == (listing.size + 5, listing.size + 5)


def test_an_interrupt_ends_threads_and_children(tmp_path: Path, with_children: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_TOLD_EVERY", 0.0)
    listing = many_files(tmp_path, large=30)

    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        digest_all([Work(listing, KINDS)], interrupt)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    assert threading.active_count() == 1


def test_what_goes_wrong_in_a_thread_is_raised_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: bytes) -> tuple[bytes, bytes]:
        raise MemoryError

    monkeypatch.setattr(hashing, "digest_batch", broken)
    with pytest.raises(MemoryError):
        digest_all([Work(many_files(tmp_path), ("sha256",))])


def test_known_files_are_left_alone(tmp_path: Path) -> None:
    listing = many_files(tmp_path, large=2)
    work = Work(listing, ("sha256",), known={0, 300, len(listing.entries) - 1})
    for number in work.known:
        work.put(number, "sha256", b"k" * 32)
    digest_all([work])
    expected = bytearray(digests(listing, "sha256"))
    for number in work.known:
        expected[32 * number : 32 * number + 32] = b"k" * 32
    assert work.digests["sha256"] == expected


def old_dvc(data: bytes) -> bytes:
    """md5 as DVC 2 took it, from its description: is the file's start text? Then CR LF becomes LF in each MiB."""
    start = data[:512]
    text = bytes(range(32, 127)) + b"\n\r\t\f\b"
    is_text = not start or (0 not in start and sum(byte not in text for byte in start) / len(start) <= 0.3)
    pieces = (data[at : at + MIB] for at in range(0, len(data), MIB))
    return hashlib.md5(b"".join(piece.replace(b"\r\n", b"\n") if is_text else piece for piece in pieces)).digest()


SAMPLES = {
    "empty": b"",
    "unix": b"a\nb\n",
    "dos": b"a\r\nb\r\n",
    "binary": b"\0a\r\nb\r\n",
    "mostly binary": b"\xff" * 40 + b"a\r\n" * 20,
    "NUL late": b"a\r\n" * 200 + b"\0\r\n",
    "large": b"a\r\n" * MIB,
    "split": b"a" * (MIB - 1) + b"\r\n" + b"b\r\n" * MIB,
    "large binary": b"\0" + b"a\r\n" * MIB,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_old_dvc_read_text_with_its_line_ends_turned(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(SAMPLES[name])
    found = digest_file(os.fsencode(path), identity(os.stat(path)), ("md5-dos2unix", "md5", "sha256"))
    assert found == [old_dvc(SAMPLES[name]), hashlib.md5(SAMPLES[name]).digest(), hashlib.sha256(SAMPLES[name]).digest()]


def test_a_folder_has_the_md5_of_dvcs_listing(tmp_path: Path) -> None:
    """The figure that DVC 3 gives for `data/` with `a` = "foo" and `sub/b` = "bar" is that of the JSON below."""
    write(tmp_path, data__a="foo", data__sub__b="bar", data__é="foo", data___dot_git__config="left out", outside__c="left out")
    (tmp_path / "data" / os.fsdecode(b"\xff")).write_text("bar")
    (tmp_path / "data/𝄞").write_text("bar")
    (tmp_path / "data/linked").symlink_to("../outside")
    listing = list_files(tmp_path / "data")
    work = Work(listing, ("md5",))
    digest_all([work])
    foo, bar = "acbd18db4cc2f85cedef654fccc4a4d8", "37b51d194a7513e45b56f6524f2d51f2"
    names = {"a": foo, "sub/b": bar, "é": foo, os.fsdecode(b"\xff"): bar, "𝄞": bar}
    files = [{"relpath": name, "md5": md5} for name, md5 in sorted(names.items())]
    assert dvc_md5(listing, work.digests["md5"]) == hashlib.md5(json.dumps(files, sort_keys=True).encode()).hexdigest() + ".dir"
    assert len(listing.entries) == 7


def test_a_listing_is_ordered_by_the_bytes_of_whole_paths(tmp_path: Path) -> None:
    write(tmp_path, a__b="", a_dot_b="", **{"a-b": ""})
    (tmp_path / "deep" / "/".join("x" * 600)).mkdir(parents=True)
    names = [entry_name(entry) for entry in list_files(tmp_path).entries]
    assert names == [b"a-b", b"a.b", b"a/b"]


def test_a_loop_a_broken_link_and_a_missing_folder_are_errors_with_their_path(tmp_path: Path) -> None:
    write(tmp_path, loop__a__b="")
    (tmp_path / "loop/a/up").symlink_to("..")
    with pytest.raises(OSError, match="leads back to a folder above it"):
        list_files(tmp_path / "loop")
    (tmp_path / "broken/a").mkdir(parents=True)
    (tmp_path / "broken/a/link").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError) as caught:
        list_files(tmp_path / "broken")
    assert caught.value.filename == os.fsencode(tmp_path / "broken/a/link")
    with pytest.raises(FileNotFoundError):
        list_files(tmp_path / "gone")


def test_one_file_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    listing = list_files(tmp_path / "a")
    assert tree_sha256(listing, hashlib.sha256(b"abc").digest()) == hashlib.sha256(b"abc").digest()
    assert dvc_md5(listing, hashlib.md5(b"abc").digest()) == hashlib.md5(b"abc").hexdigest()
