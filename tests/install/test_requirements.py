"""The lock that is installed from: what is taken, and what is refused with its line because no hash
could check it."""

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
    assert (
        caught.value.exit_code == 2
        and caught.value.reason_id == "install/lockfile"
        and caught.value.remedy
    )
    return caught.value


def test_a_lock_with_hashes_is_taken_with_what_it_includes(tmp_path: Path) -> None:
    spec = checkout(tmp_path, f"--index-url https://example.org/simple\n-r more.txt\n{GOOD}")
    (tmp_path / "more.txt").write_text(f"idna==3.10 \\\n    {HASH}\n")
    lock, texts = wanted(spec, tmp_path)
    assert list(texts) == ["requirements.lock", "more.txt"] and "idna==3.10" in texts["more.txt"]
    assert {pin.name for pin in lock.pins} == {"six", "idna"}


@pytest.mark.parametrize(
    ("text", "place", "piece"),
    [
        ("six==1.17.0\n", 1, "no hash"),
        (f"-r https://example.org/other.txt\n{GOOD}", 1, "URL"),
        (f"{GOOD}-c other.txt\n", 2, "constraints"),
        (f"{GOOD}  --constraint=other.txt\n", 2, "constraints"),
        (
            f"{GOOD}--extra-index-url https://example.org/${{PIP_INDEX_URL}}/simple\n",
            2,
            "variables",
        ),
        (f"{GOOD}idna==${{V}} {HASH}\n", 2, ""),
    ],
)
def test_a_lock_that_leaves_something_open_or_would_send_variables_is_refused_with_the_line(
    tmp_path: Path, text: str, place: int, piece: str
) -> None:
    error = refused(tmp_path, text)
    assert f"requirements.lock:{place}: " in error.message and piece in error.message


@pytest.mark.parametrize(
    ("name", "text", "piece"),
    [
        (
            "uv.lock",
            (
                'version = 1\n[[package]]\nname = "six"\nversion = "1.17.0"\nsource = { registry = '
                '"x" }\n'
            ),
            "uv export",
        ),
        (
            "poetry.lock",
            '[[package]]\nname = "six"\nversion = "1.17.0"\nfiles = []\n',
            "poetry export",
        ),
    ],
)
def test_a_lock_of_another_tool_is_told_the_command_that_exports_it(
    tmp_path: Path, name: str, text: str, piece: str
) -> None:
    error = refused(tmp_path, text, name)
    assert name in error.message and piece in error.remedy


def test_a_lock_that_is_not_there_or_not_inside_or_would_build_next_to_a_password_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "outside.txt").write_text(GOOD)
    assert "outside" in refused(tmp_path / "c", f"-r ../outside.txt\n{GOOD}").message
    spec = checkout(tmp_path / "c", f"--no-binary=:all:\n{GOOD}")
    given = {**outer(tmp_path), "PIP_EXTRA_INDEX_URL": "https://me:secret@example.org/simple"}
    with (
        pytest.raises(UsageError, match="asks for source archives") as caught,
        installed(spec, tmp_path / "c", given, Sandbox(), cache_root=tmp_path / "cache"),
    ):
        pass
    assert "secret" not in caught.value.message
    (tmp_path / "c/requirements.lock").unlink()
    with pytest.raises(UsageError, match="is not there"):
        wanted(spec, tmp_path / "c")
