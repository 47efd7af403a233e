"""Every format: what a real file pins, what a damaged one leaves open, and that what is no lock is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.install.lockfiles import KINDS, kind_of, read_lock
from repro_gate.install.lockfiles.model import MAX_BYTES, Lock, LockfileError, strong
from tests.support.lockfiles import ALL, COMMIT, IDNA


def read(folder: Path, name: str, text: str) -> Lock:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_lock(path, folder)


@pytest.mark.parametrize("name", ALL)
def test_a_lock_as_its_tool_writes_it_pins_everything(name: str, tmp_path: Path) -> None:
    lock = read(tmp_path, name, ALL[name])
    assert lock.faults == () and lock.files == (name,)
    idna = next(pin for pin in lock.pins if pin.name == "idna")
    line = next(number for number, text in enumerate(ALL[name].split("\n"), 1) if "idna" in text and "autogen" not in text)
    assert idna.version == "3.10" and not idna.open
    assert idna.place in (f"{name}:{line}", f"{name}:{line - 1}")


@pytest.mark.parametrize("name", ALL)
def test_a_file_without_its_hash_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    wrong = ALL[name].replace(IDNA[1], "946d195a")
    lock = read(tmp_path, name, wrong)
    assert len(lock.faults) == 1
    weak = f"md5:{'0' * 32}" if name == "pylock.toml" else "sha256:946d195a"
    assert lock.faults[0].startswith(f"{name}:") and f": idna: {weak} is not a digest that pins a file" in lock.faults[0]


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock"])
def test_a_repository_is_pinned_by_its_commit_alone(name: str, tmp_path: Path) -> None:
    assert next(pin for pin in read(tmp_path, name, ALL[name]).pins if pin.name == "six").open is False
    lock = read(tmp_path, name, ALL[name].replace(COMMIT, "main"))
    assert [fault.partition(": ")[2] for fault in lock.faults] == ["six: a repository at no commit"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "[[package]\n",
        "{",
        "\t- a: [",
        "[" * 100_000,
        '{"a":' * 50_000,
        "package = 1\npackages = 1\n",
        "- " * 5_000 + "x",
        "=" * 50_000,
    ],
    ids=["empty", "nul", "header", "brace", "tab", "deep", "deep-json", "scalar", "deep-yaml", "equals"],
)
def test_what_is_no_lock_is_refused_with_its_name(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=f"^{name.replace('.', '[.]')}[:0-9]*: "):
        read(tmp_path, name, text)


@pytest.mark.parametrize("name", ALL)
def test_bytes_size_and_kind_of_file_are_checked_before_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"# \xff\n")
    with pytest.raises(LockfileError, match=r"is not UTF-8 text \(byte 2\)"):
        read_lock(path, tmp_path)
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(LockfileError, match="is larger than"):
        read_lock(path, tmp_path)
    path.unlink()
    with pytest.raises(LockfileError, match="is not there"):
        read_lock(path, tmp_path)
    path.mkdir()
    with pytest.raises(LockfileError, match=r"no regular file|cannot be read"):
        read_lock(path, tmp_path)


def test_a_lock_outside_the_checkout_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "repo"
    inside.mkdir()
    (tmp_path / "uv.lock").write_text(ALL["uv.lock"])
    (inside / "uv.lock").symlink_to("../uv.lock")
    for path in (inside / "uv.lock", tmp_path / "uv.lock"):
        with pytest.raises(LockfileError, match="lies outside the checkout"):
            read_lock(path, inside)


def test_a_name_that_no_format_has_is_refused_with_the_formats(tmp_path: Path) -> None:
    with pytest.raises(LockfileError, match=r"environment.yml: is of no kind that the gate reads") as refused:
        read(tmp_path, "environment.yml", "dependencies: [python]\n")
    assert KINDS in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("requirements.lock", "requirements"),
        ("requirements-train.txt", "requirements"),
        ("pylock.train.toml", "pylock.toml"),
        ("gpu.conda-lock.yml", "conda-lock"),
        ("Pipfile.lock", "Pipfile.lock"),
        ("pyproject.toml", None),
        ("environment.yml", None),
        ("setup.py", None),
    ],
)
def test_the_kind_follows_from_the_name(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("digest", "is_strong"),
    [
        (f"sha256:{'a' * 64}", True),
        (f"SHA256:{'A' * 64}", True),
        (f"sha512:{'a' * 128}", True),
        (f"sha256:{'a' * 63}", False),
        (f"sha256:{'g' * 64}", False),
        (f"md5:{'a' * 32}", False),
        (f"sha1:{'a' * 40}", False),
        ("a" * 64, False),
        ("", False),
    ],
)
def test_only_a_whole_digest_that_cannot_be_forged_pins(digest: str, is_strong: bool) -> None:
    assert strong(digest) is is_strong
