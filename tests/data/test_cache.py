"""Claims about the cache of data digests: what has not moved is not read again, what has is, and a
bad cache changes no answer."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from repro_gate.data import cache, hashing
from repro_gate.data.cache import RACY_NS, DataCache, default_cache_path
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.spec.model import DataItem

LARGE = b"x" * (1 << 21)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of old files: `data/large`, `data/small`, and `one`."""
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


def verified(
    place: Path, *paths: str, cache: str = "cache/digests", notes: int = 0
) -> tuple[DataFinding, ...]:
    with DataCache(place / cache) as opened:
        found = verify_data([DataItem(path) for path in paths], place, cache=opened)
    assert len(opened.notes) == notes, opened.notes
    return found


def plain(place: Path, *paths: str) -> list[str | None]:
    return [finding.actual for finding in verify_data([DataItem(path) for path in paths], place)]


def test_what_has_not_changed_is_not_read_again(place: Path, read: list[str]) -> None:
    first = verified(place, "data", "one")
    assert sorted(read) == ["large", "one", "small"] and not any(
        finding.cached for finding in first
    )
    read.clear()
    second = verified(place, "data", "one")
    assert read == [] and all(finding.cached for finding in second)
    assert (
        [finding.actual for finding in second]
        == [finding.actual for finding in first]
        == plain(place, "data", "one")
    )
    assert [(finding.size, finding.files) for finding in second] == [
        (len(LARGE) + 5, 2),
        (len(LARGE), 1),
    ]


def rewritten(path: Path) -> None:
    path.write_bytes(b"y" * len(LARGE))


def with_the_old_mtime(path: Path) -> None:
    status = os.stat(path)
    path.write_bytes(b"y" * len(LARGE))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path: Path) -> None:
    status = os.stat(path)
    other = path.with_name("other")
    other.write_bytes(b"y" * len(LARGE))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [rewritten, with_the_old_mtime, replaced])
def test_what_changed_is_read_again_however_it_changed(
    place: Path, read: list[str], change: Callable[[Path], None]
) -> None:
    verified(place, "data", "one")
    for name in ("data/large", "one"):
        change(place / name)
    found = verified(place, "data", "one")
    assert [finding.actual for finding in found] == plain(place, "data", "one")
    assert found[1].actual == hashlib.sha256(b"y" * len(LARGE)).hexdigest()


def test_a_link_is_known_by_where_it_leads(place: Path, read: list[str]) -> None:
    (place / "link").symlink_to("one")
    verified(place, "one")
    assert verified(place, "link")[0].cached
    rewritten(place / "data/large")
    (place / "link").unlink()
    (place / "link").symlink_to("data/large")
    assert verified(place, "link")[0].actual == hashlib.sha256(b"y" * len(LARGE)).hexdigest()


def test_a_file_that_changed_within_two_seconds_is_not_remembered(place: Path) -> None:
    now = time.time_ns()
    for newest, remembered in (
        (now - RACY_NS + 1, False),
        (now + 10 * RACY_NS, False),
        (now - RACY_NS, True),
    ):
        with DataCache(place / f"cache/{newest}") as cache:
            cache.keep("sha256", place / "one", b"identity", "digest", newest=newest, read_at=now)
        with DataCache(place / f"cache/{newest}") as cache:
            assert (cache.find("sha256", place / "one", b"identity") == "digest") is remembered
    verified(place, "one")
    assert not verified(place, "one")[0].cached


def test_an_md5_and_a_sha256_are_remembered_apart(place: Path, read: list[str]) -> None:
    verified(place, "data")
    with DataCache(place / "cache/digests") as cache:
        (found,) = verify_data([DataItem("data", md5="0" * 32 + ".dir")], place, cache=cache)
        assert not found.cached
    with DataCache(place / "cache/digests") as cache:
        (again,) = verify_data([DataItem("data", md5="0" * 32 + ".dir")], place, cache=cache)
        assert again.cached and again.md5_actual == found.md5_actual and again.matches is False


def test_the_cache_is_this_users_alone(place: Path, read: list[str]) -> None:
    verified(place, "one", cache="new/deep/repro-gate/digests")
    assert (place / "new/deep/repro-gate").stat().st_mode & 0o777 == 0o700
    assert (place / "new/deep/repro-gate/digests").stat().st_mode & 0o777 == 0o600


def corrupt(file: Path) -> None:
    file.write_bytes(os.urandom(8000))


def of_another_version(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"digests 1 ", b"digests 2 "))


def with_a_bit_changed(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"]', b'0"]'))


def symlinked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def hard_linked(file: Path) -> None:
    os.link(file, file.with_name("elsewhere"))


def open_to_others(file: Path) -> None:
    file.chmod(0o644)


def folder_open_to_others(file: Path) -> None:
    file.parent.chmod(0o777)


def folder_symlinked(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.symlink_to("elsewhere")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def too_large(file: Path) -> None:
    os.truncate(file, cache.MAX_BYTES + 1)


def in_no_folder(file: Path) -> None:
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("a file")


SPOILED = (
    corrupt, of_another_version, with_a_bit_changed, symlinked, hard_linked, open_to_others, folder_open_to_others,
    folder_symlinked, a_folder, a_pipe, too_large, in_no_folder,
)  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_cache_that_cannot_be_trusted_is_a_note_and_no_wrong_answer(
    place: Path, read: list[str], spoil: Callable[[Path], None]
) -> None:
    verified(place, "one")
    assert verified(place, "one")[0].cached
    spoil(place / "cache/digests")
    (found,) = verified(place, "one", notes=1)
    assert not found.cached and found.actual == hashlib.sha256(LARGE).hexdigest()


def test_a_cache_of_another_user_is_not_used(
    place: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verified(place, "one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (found,) = verified(place, "one", notes=1)
    assert not found.cached and found.actual == hashlib.sha256(LARGE).hexdigest()


def test_a_cache_that_cannot_be_written_is_a_note(place: Path) -> None:
    assert (
        verified(place, "one", cache="/dev/null/repro-gate/digests", notes=1)[0].actual
        == hashlib.sha256(LARGE).hexdigest()
    )


def test_a_kept_digest_of_a_changed_file_never_outlives_it(place: Path, read: list[str]) -> None:
    verified(place, "one")
    (place / "one").write_bytes(b"z" * (1 << 21))
    assert verified(place, "one")[0].actual == hashlib.sha256(b"z" * (1 << 21)).hexdigest()
    assert verified(place, "one")[0].cached


def test_the_entries_used_longest_ago_go_first(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 3)
    for number in range(5):
        with DataCache(place / "cache/digests") as opened:
            opened.find("sha256", Path("/0"), b"identity")
            opened.keep(
                "sha256", Path(f"/{number}"), b"identity", "digest", newest=0, read_at=RACY_NS
            )
    with DataCache(place / "cache/digests") as opened:
        found = [opened.find("sha256", Path(f"/{number}"), b"identity") for number in range(5)]
    assert found == ["digest", None, None, "digest", "digest"]


def test_a_read_that_gives_less_than_asked_is_not_the_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: given(descriptor, min(size, 2)))
    assert verified(place, "data/small")[0].actual == hashlib.sha256(b"small").hexdigest()


def test_a_file_that_is_replaced_leaves_no_other_behind(place: Path, read: list[str]) -> None:
    verified(place, "one", "data")
    verified(place, "one")
    assert os.listdir(place / "cache") == ["digests"]


def test_the_cache_lies_where_caches_lie() -> None:
    assert default_cache_path({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path(
        "/c/repro-gate/data.json"
    )
    assert default_cache_path({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.cache/repro-gate/data.json"
    )
    assert default_cache_path({}) is None
