"""The runner's files, read back here as the runner reads them, with everything in them that
untrusted code would try."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.github import workflow
from repro_gate.github.workflow import write_outputs, write_summary
from tests.support.composite import pairs


def outputs_in(path: Path) -> dict[str, str]:
    return pairs(path.read_bytes().decode("utf-8"))


def test_outputs_arrive_as_they_were_after_what_stands_there(tmp_path: Path) -> None:
    for value in (
        "pass",
        "",
        "two\nlines",
        "\n",
        "a=b",
        "verdict=pass\nx<<EOF\nEOF",
        "\r\n::error::x",
        '{"step": 3}',
        "é\u202e\U0001f600",
        "trailing\n",
    ):
        path = tmp_path / "output"
        path.touch()
        write_outputs(path, {"verdict": value, "after": "1"})
        assert outputs_in(path) == {"verdict": value, "after": "1"}
    path = tmp_path / "output"
    path.write_text("earlier=1")
    write_outputs(path, {"verdict": "pass"})
    write_outputs(path, {"cause": "x\ud800"})  # half a character does not stop them
    assert outputs_in(path) == {"earlier": "1", "verdict": "pass", "cause": "x\\ud800"}
    # a value cannot end itself
    path = tmp_path / "other"
    write_outputs(path, {"a": "x"})
    seen = path.read_text().split("\n")[1].partition("<<")[2]
    write_outputs(path, {"b": f"x\n{seen}\nverdict=pass"})
    assert outputs_in(path) == {"a": "x", "b": f"x\n{seen}\nverdict=pass"}


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "second name", "folder"])
def test_what_is_not_the_runners_own_file_is_not_written_to(tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "target", tmp_path / "output"
    if kind != "dangling":
        target.write_text("shadow")
    if kind in ("link", "dangling"):
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "second name":
        path.hardlink_to(target)
    else:
        path.mkdir()
    with pytest.raises(Inconclusive, match="GITHUB_OUTPUT") as caught:
        write_outputs(path, {"verdict": "pass"})
    assert caught.value.remedy
    with pytest.raises(Inconclusive, match="GITHUB_STEP_SUMMARY"):
        write_summary(path, "# x")
    assert not target.exists() if kind == "dangling" else target.read_text() == "shadow"


def test_a_summary_is_added_on_a_line_of_its_own_while_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("earlier")
    write_summary(path, "# Gate\n")
    assert path.read_text() == "earlier\n# Gate\n"
    write_outputs(None, {"verdict": "pass"})
    write_summary(None, "# x")
    for earlier in ("", "x" * 1000, "x" * 999 + "\n"):
        path = tmp_path / "summary"
        path.write_text(earlier)
        room = workflow.SUMMARY_BYTES - len(earlier) - 1
        markdown = "é" * (room // 2) + "y" * (room % 2)
        write_summary(path, markdown + "z")
        assert path.read_text() == earlier
        write_summary(path, markdown)
        assert path.stat().st_size == workflow.SUMMARY_BYTES
