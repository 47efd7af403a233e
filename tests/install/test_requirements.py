"""The lock that is installed from: what is taken, and what is refused with its line because no hash could check it."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.install.install import installed, wanted
from repro_gate.sandbox.identity import Sandbox
from tests.support.wheels import checkout, outer

HASH = "--hash=sha256:" + "0" * 64
GOOD = f"six==1.17.0 {HASH}\n"


def refused(folder: Path, text: str, name: str = "requirements.lock") -> UsageError:
    spec = checkout(folder, text, name)
    with pytest.raises(UsageError) as caught:
        wanted(spec, folder)
    assert caught.value.exit_code == 2 and caught.value.reason_id == "install/lockfile" and caught.value.remedy
    return caught.value


def test_a_lock_with_hashes_is_taken_with_what_it_includes(tmp_path: Path) -> None:
    spec = checkout(tmp_path, f"--index-url https://example.org/simple\n-r more.txt\n{GOOD}")
    (tmp_path / "more.txt").write_text(f"idna==3.10 \\\n    {HASH}\n")
    lock, texts = wanted(spec, tmp_path)
    assert list(texts) == ["requirements.lock", "more.txt"] and "idna==3.10" in texts["more.txt"]
    assert {pin.name for pin in lock.pins} == {"six", "idna"}


@pytest.mark.parametrize(
    ("line", "piece"),
    [
        ("six==1.17.0", "no hash"),
        (f"six>=1.17 {HASH}", "no one version"),
        ("-e .", "editable"),
        ("six @ git+https://example.org/six@main", "repository"),
        (f"-r https://example.org/other.txt\n{GOOD}", "URL"),
    ],
)
def test_a_lock_that_leaves_something_open_is_refused_with_the_line(tmp_path: Path, line: str, piece: str) -> None:
    error = refused(tmp_path, line + "\n")
    assert "requirements.lock:1" in error.message and piece in error.message and "--generate-hashes" in error.remedy


@pytest.mark.parametrize("line", ["-c other.txt", "--constraint other.txt", "  --constraint=other.txt"])
def test_constraints_are_refused_with_the_line(tmp_path: Path, line: str) -> None:
    assert "requirements.lock:2" in refused(tmp_path, f"{GOOD}{line}\n").message


@pytest.mark.parametrize("line", ["--extra-index-url https://example.org/${PIP_INDEX_URL}/simple", f"six==${{V}} {HASH}"])
def test_a_lock_that_would_send_variables_somewhere_is_refused(tmp_path: Path, line: str) -> None:
    assert "requirements.lock:" in refused(tmp_path, f"{GOOD}{line}\n").message


@pytest.mark.parametrize(
    ("name", "text", "piece"),
    [
        ("uv.lock", 'version = 1\n[[package]]\nname = "six"\nversion = "1.17.0"\nsource = { registry = "x" }\n', "uv export"),
        ("poetry.lock", '[[package]]\nname = "six"\nversion = "1.17.0"\nfiles = []\n', "poetry export"),
    ],
)
def test_a_lock_of_another_tool_is_told_the_command_that_exports_it(tmp_path: Path, name: str, text: str, piece: str) -> None:
    error = refused(tmp_path, text, name)
    assert name in error.message and piece in error.remedy


def test_a_lock_that_is_not_there_or_not_inside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text(GOOD)
    assert "outside" in refused(tmp_path / "c", f"-r ../outside.txt\n{GOOD}").message
    spec = checkout(tmp_path / "c", GOOD)
    (tmp_path / "c/requirements.lock").unlink()
    with pytest.raises(UsageError, match="is not there"):
        wanted(spec, tmp_path / "c")


def test_source_archives_are_refused_where_an_address_carries_a_password(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", f"--no-binary=:all:\n{GOOD}")
    given = {**outer(tmp_path), "PIP_EXTRA_INDEX_URL": "https://me:secret@example.org/simple"}
    with (
        pytest.raises(UsageError, match="asks for source archives") as caught,
        installed(spec, tmp_path / "c", given, Sandbox(), cache_root=tmp_path / "cache"),
    ):
        pass
    assert "secret" not in caught.value.message
