"""The cache of data digests: what has not moved is not read again; a bad one changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from repro_gate.data import cache, hashing
from repro_gate.data.cache import RACY_NS, DataCache
from repro_gate.data.declared import verify_data
from repro_gate.files import cache_folder
from repro_gate.spec.model import DataItem

LARGE = b"x" * (1 << 21)
FILE = "cache/digests"
MD5 = DataItem("data", md5="0" * 32 + ".dir")
Verify = Callable[..., list[str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of files: `data/large`, `data/small`, and `one`."""
    (tmp_path / "data").mkdir()
    for name in ("data/large", "one"):
        (tmp_path / name).write_bytes(LARGE)
    (tmp_path / "data/small").write_text("small")
    return tmp_path


@pytest.fixture
def verified(place: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Verifies items with the cache, as without it, and returns the names of the files that it
    read; everything counts as old. `noted`: the cache could not be used."""
    names: list[str] = []
    whole = hashing.digest_file

    def noting(path: bytes, *arguments: object) -> object:
        names.append(os.fsdecode(os.path.basename(path)))
        return whole(path, *arguments)  # type: ignore[arg-type]

    def verify(*paths: str | DataItem, file: str = FILE, noted: bool = False) -> list[str]:
        items = [DataItem(path) if isinstance(path, str) else path for path in paths]
        opened = DataCache(place / file)
        names.clear()
        found = verify_data(items, place, cache=opened)
        read = sorted(names)
        opened.write()
        assert bool(opened.note) is noted, opened.note
        assert found == verify_data(items, place)
        return read

    monkeypatch.setattr(hashing, "digest_file", noting)
    monkeypatch.setattr(cache, "RACY_NS", -10 * RACY_NS)
    return verify


def test_what_has_not_changed_is_not_read_again(place: Path, verified: Verify) -> None:
    assert verified("data", "one") == ["large", "one", "small"]
    assert verified("data", "one") == []
    assert verified("data", "one", "data/small", "gone") == ["small"]
    (place / "data/small").write_text("other")
    assert verified("data", "one") == ["large", "small"]
    assert os.listdir(place / "cache") == ["digests"]
    # an md5 and a sha256 are remembered apart
    assert verified(MD5) == ["large", "small"] and verified(MD5, "data") == []


@pytest.mark.parametrize("replaced", [False, True])
def test_what_kept_its_size_and_time_is_read(place: Path, verified: Verify, replaced: bool) -> None:
    verified("data", "one")
    for path in (place / "data/large", place / "one"):
        was, new = path.stat(), path.with_name("other") if replaced else path
        new.write_bytes(b"y" * len(LARGE))
        os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
        new.replace(path)
    assert verified("data", "one") == ["large", "one", "small"] and verified("one") == []


def test_a_link_is_known_by_where_it_leads(place: Path, verified: Verify) -> None:
    (place / "link").symlink_to("one")
    assert verified("one") == ["one"] and verified("link") == []
    (place / "link").unlink()
    (place / "link").symlink_to("data/small")
    assert verified("link") == ["link"]


def test_what_changed_within_two_seconds_is_not_remembered(place: Path) -> None:
    now = time.time_ns()
    for newest, remembered in (
        (now - RACY_NS + 1, False),
        (now + 10 * RACY_NS, False),
        (now - RACY_NS, True),
    ):
        opened = DataCache(place / f"cache/{newest}")
        opened.keep("key", {"sha256": "digest"}, newest=newest, read_at=now)
        opened.write()
        assert bool(DataCache(opened.path).find("key")) is remembered


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


SPOILED: dict[str, Callable[[Path], object]] = {
    "of another version": lambda file: file.write_bytes(b"x" + file.read_bytes()),
    "symlinked": linked,
    "hard linked": lambda file: os.link(file, file.with_name("elsewhere")),
    "open to others": lambda file: file.chmod(0o644),
    "folder open to others": lambda file: file.parent.chmod(0o777),
    "folder symlinked": lambda file: linked(file.parent),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file, 0o600)),
    "too large": lambda file: os.truncate(file, cache.MAX_BYTES + 1),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_cache_that_cannot_be_trusted_is_a_note(place: Path, verified: Verify, how: str) -> None:
    verified("one")
    SPOILED[how](place / FILE)
    assert verified("one", noted=True) == ["one"]


def test_the_cache_is_this_users_alone_and_one_of_another_or_that_cannot_be_written_is_a_note(
    place: Path, verified: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified("one", file="new/deep/repro-gate/digests")
    assert (place / "new/deep/repro-gate").stat().st_mode & 0o777 == 0o700
    assert (place / "new/deep/repro-gate/digests").stat().st_mode & 0o777 == 0o600
    verified("one", file="/dev/null/repro-gate/digests", noted=True)
    verified("one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    verified("one", noted=True)


def test_entries_used_longest_ago_go_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 3)
    for number in range(5):
        opened = DataCache(place / FILE)
        opened.find("0")
        opened.keep(str(number), {"sha256": "digest"}, newest=0, read_at=RACY_NS)
        opened.write()
    opened = DataCache(place / FILE)
    assert [number for number in range(5) if opened.find(str(number))] == [0, 3, 4]


def test_the_cache_lies_where_caches_lie() -> None:
    expected = Path("/c/repro-gate/data.json")
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "data.json") == expected
    assert cache_folder({}, "data.json") is None
