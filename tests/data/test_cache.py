"""The cache of data digests: what has not moved is not read again; a bad one changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from repro_gate.data import cache, hashing
from repro_gate.data.cache import RACY_NS, DataCache, default_cache_path
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.spec.model import DataItem

LARGE = b"x" * (1 << 21)
FILE = "cache/digests"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of files: `data/large`, `data/small`, and `one`."""
    (tmp_path / "data").mkdir()
    for name in ("data/large", "one"):
        (tmp_path / name).write_bytes(LARGE)
    (tmp_path / "data/small").write_text("small")
    return tmp_path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files, as they are read; everything counts as old."""
    names: list[str] = []
    whole = hashing.digest_file

    def noted(path: bytes, *arguments: object) -> object:
        names.append(os.fsdecode(os.path.basename(path)))
        return whole(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hashing, "digest_file", noted)
    monkeypatch.setattr(cache, "RACY_NS", -10 * RACY_NS)
    return names


def with_cache(
    place: Path, items: Sequence[DataItem | str], file: str | None
) -> tuple[tuple[DataFinding, ...], str]:
    """What is found, and the cache's note; without a file, no cache."""
    opened = DataCache(place / file) if file is not None else None
    declared = [DataItem(item) if isinstance(item, str) else item for item in items]
    found = verify_data(declared, place, cache=opened)
    if opened is None:
        return found, ""
    opened.write()
    return found, opened.note


def verified(place: Path, *items: DataItem | str, file: str = FILE, noted: bool = False) -> None:
    """With the cache, what is found is the same as without; `noted`: it could not be used."""
    found, note = with_cache(place, items, file)
    assert found == with_cache(place, items, None)[0]
    assert bool(note) is noted, note


def names_read(read: list[str], place: Path, *items: DataItem | str) -> list[str]:
    """What is read for these items with the cache."""
    read.clear()
    with_cache(place, items, FILE)
    return sorted(read)


def test_what_has_not_changed_is_not_read_again(place: Path, read: list[str]) -> None:
    assert names_read(read, place, "data", "one") == ["large", "one", "small"]
    assert names_read(read, place, "data", "one") == []
    verified(place, "data", "one", "data/small", "gone")
    (place / "data/small").write_text("other")
    assert names_read(read, place, "data", "one") == ["large", "small"]
    assert os.listdir(place / "cache") == ["digests"]


@pytest.mark.parametrize("replaced", [False, True])
def test_what_kept_its_size_and_time_is_read(place: Path, read: list[str], replaced: bool) -> None:
    verified(place, "data", "one")
    for path in (place / "data/large", place / "one"):
        was, new = path.stat(), path.with_name("other") if replaced else path
        new.write_bytes(b"y" * len(LARGE))
        os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
        new.replace(path)
    verified(place, "data", "one")
    assert names_read(read, place, "data", "one") == []


def test_a_link_is_known_by_where_it_leads(place: Path, read: list[str]) -> None:
    (place / "link").symlink_to("one")
    verified(place, "one")
    assert names_read(read, place, "link") == []
    (place / "link").unlink()
    (place / "link").symlink_to("data/small")
    verified(place, "link")


def test_an_md5_and_a_sha256_are_remembered_apart(place: Path, read: list[str]) -> None:
    with_md5 = DataItem("data", md5="0" * 32 + ".dir")
    verified(place, "data")
    assert names_read(read, place, with_md5) == ["large", "small"]
    assert names_read(read, place, with_md5, "data") == []
    verified(place, with_md5, "data")


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
    verified(place, "one")
    assert not (place / FILE).exists()


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
def test_a_cache_that_cannot_be_trusted_is_a_note(place: Path, read: list[str], how: str) -> None:
    verified(place, "one")
    SPOILED[how](place / FILE)
    verified(place, "one", noted=True)


def test_the_cache_is_this_users_alone_and_one_of_another_or_that_cannot_be_written_is_a_note(
    place: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verified(place, "one", file="new/deep/repro-gate/digests")
    assert (place / "new/deep/repro-gate").stat().st_mode & 0o777 == 0o700
    assert (place / "new/deep/repro-gate/digests").stat().st_mode & 0o777 == 0o600
    verified(place, "one", file="/dev/null/repro-gate/digests", noted=True)
    verified(place, "one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    verified(place, "one", noted=True)


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
    for home, expected in (("/c", "/c/repro-gate"), ("relative", "/h/.cache/repro-gate")):
        found = default_cache_path({"XDG_CACHE_HOME": home, "HOME": "/h"})
        assert found == Path(expected, "data.json")
    assert default_cache_path({}) is None
