"""What an untrusted process left is removed; a checkout's files are read inside it and bounded."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.files import (
    Unreadable,
    copy_file,
    digest_of_blocks,
    is_inside,
    parse_toml,
    read_text,
    remove_tree,
    written_blocks,
)
from tests.support.repositories import tree, write


def test_a_hostile_tree_or_link_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept", file="x")
    top = tmp_path / "top"
    write(tmp_path, top__locked__inner__file="x", top__plain="y")
    (top / "link").symlink_to(tmp_path / "kept")
    (top / "locked/link").symlink_to(tmp_path / "kept/file")
    os.mkfifo(top / "pipe")
    (top / ".removing-0").mkdir()
    (top / "locked/inner").chmod(0)
    (top / "locked").chmod(0o500)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    top.chmod(0o100)
    remove_tree(top)
    assert not top.exists() and tree(tmp_path / "kept") == ["file"]
    write(tmp_path, real__file="x")
    (tmp_path / "link").symlink_to("real")
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "never-there")
    assert tree(tmp_path) == ["kept/file", "real/file"]
    with pytest.raises(Inconclusive, match="cannot remove /proc/self/fdinfo"):
        remove_tree(Path("/proc/self/fdinfo"))


def refuse(*_: object) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lacks", ["", "copy_file_range", "lseek"])
def test_a_file_is_copied_whatever_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str, sparse: bool
) -> None:
    source, content = tmp_path / "source", os.urandom(3_000_001)
    source.write_bytes(content)
    if sparse:
        os.truncate(source, 64 << 20)
    if lacks:
        monkeypatch.setattr(os, lacks, refuse)
    assert copy_file(source, tmp_path / "copy") == source.stat().st_size
    assert (tmp_path / "copy").read_bytes() == content + bytes(source.stat().st_size - len(content))
    assert lacks == "lseek" or (tmp_path / "copy").stat().st_blocks <= source.stat().st_blocks + 64


def test_a_digest_knows_bytes_and_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = 1 << 16

    def digest(name: str, *written: tuple[int, bytes], size: int) -> str:
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
        with (tmp_path / name).open("r+b", buffering=0) as file:
            for at, content in written:
                file.seek(at)
                file.write(content)
            return digest_of_blocks(written_blocks(file.fileno(), size), size)

    size = 8 * block + 5
    hole = digest("hole", (3 * block, b"x" * 9), size=size)
    zeros = bytes(3 * block), b"x" * 9, bytes(5 * block - 4)
    assert digest("zeros", (0, b"".join(zeros)), size=size) == hole
    with monkeypatch.context() as system:
        system.setattr(os, "lseek", refuse)
        assert digest("hole", size=size) == hole
        # it was cut after its size was read
        (tmp_path / "cut").write_bytes(b"x" * 9)
        with open(tmp_path / "cut", "rb") as cut:
            assert list(written_blocks(cut.fileno(), size)) == [(0, b"x" * 9)]
    others = {
        digest("one more", (3 * block, b"x" * 9), size=size + 1),
        digest("moved", (4 * block, b"x" * 9), size=size),
        digest("other", (3 * block, b"x" * 8 + b"y"), size=size),
        digest("empty", size=size),
        digest("none", size=0),
    }
    assert len(others | {hole}) == 6
    plain = os.urandom(size)
    assert digest("plain", (0, plain), size=size) == hashlib.sha256(plain).hexdigest()
    # a terabyte that nobody wrote takes no time
    assert digest("huge", (1 << 39, b"x"), size=1 << 40)


def test_a_neighbour_with_the_same_beginning_is_not_inside(tmp_path: Path) -> None:
    for name in ("repo", "repo-2"):
        (tmp_path / name).mkdir()
    for path, inside in (("repo/x", True), ("repo", True), ("repo-2", False)):
        assert is_inside(tmp_path / path, tmp_path / "repo") is inside
    assert is_inside(tmp_path, Path("/"))


def test_text_is_read_and_what_is_no_file_of_the_checkout_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    write(tmp_path, secret="s", in___dot_git__config="extraheader = secret", in__large="x" * 101)
    for name, target in (("link", "../secret"), ("loop", "loop"), ("credential", ".git/config")):
        (inside / name).symlink_to(target)
    os.mkfifo(inside / "pipe")
    (inside / "bytes").write_bytes(b"a\xff")
    (inside / "text").write_bytes(b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe")
    before = os.listdir("/proc/self/fd")
    assert read_text(inside / "text", inside, 100) == "grüße"  # the mark of its byte order dropped
    for name, said in {
        "link": "lies outside the checkout",
        "../secret": "lies outside the checkout",
        ".git/config": "belongs to git itself",
        "credential": "belongs to git itself",
        "gone": "is not there",
        "pipe": "is not a regular file",
        ".": "is not a regular file",
        "large": "is larger than 100 bytes",
        "bytes": r"is not UTF-8 text \(byte 1\)",
        "loop": "cannot be read",
        "nul\0": "cannot be read",
    }.items():
        with pytest.raises(Unreadable, match=said):
            read_text(inside / name, inside, 100)
    assert os.listdir("/proc/self/fd") == before  # no descriptor is left open


def test_toml_is_parsed_to_what_json_can_hold_or_refused() -> None:
    parsed = {"a": None, "b": {"c": float("inf")}, "d": [1]}
    assert parse_toml("a = 1979-05-27\nb.c = inf\nd = [1]\n") == parsed
    with pytest.raises(Unreadable, match=r"is not TOML: .*line 2"):
        parse_toml("a = 1\nb = \n")
    with pytest.raises(Unreadable, match="is not TOML"):
        parse_toml("a = " + "[" * 100_000)
    large = '[[package]]\nname = "p"\nfiles = [{url = "https://example.com/p.whl"}]\n'
    assert len(parse_toml(large * 2_000)["package"]) == 2_000
    for text in ("a" + ".a" * 20_000 + " = 1\n", "a = " + "{b = " * 2_000 + "1" + "}" * 2_000):
        with pytest.raises(Unreadable, match=r"takes more time or memory to parse|recursion"):
            parse_toml(text)
