"""`repro-gate show`: one report again, in other formats; and what is refused, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.report import document, markdown
from tests.support import reports


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is folded, wherever these tests run."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def fail(tmp_path: Path) -> Path:
    return reports.written(tmp_path / "report.json", reports.FAIL)


def test_a_report_is_shown(fail: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, checklists in (([fail], 0), ([fail, "-v"], 1), ([fail.parent], 0)):
        assert main(["show", *map(str, arguments)]) == 0
        out = capsys.readouterr().out
        assert out.startswith(" FAIL ") and out.count("Checklist ──") == checklists
    comment, sarif = tmp_path / "report.md", tmp_path / "report.sarif"
    comment.write_text("an older one")
    assert main(["show", str(fail), "--markdown", str(comment), "--sarif", str(sarif)]) == 0
    assert comment.read_text() == markdown.comment(document.load(fail))
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert capsys.readouterr().out.endswith(f"written: {comment}, {sarif}\n")


def test_what_is_no_report_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (None, "{}", "{"):
        bad = tmp_path / "bad\x1b[31m.json"
        if content is not None:
            bad.write_text(content)
        assert main(["show", str(bad)]) == 2
        shown = capsys.readouterr()
        assert "bad\\x1b[31m.json" in shown.err and not shown.out


def test_an_untrusted_report_prints_no_escape_and_no_workflow_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worst = reports.written(tmp_path / "worst.json", reports.hostile())
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for more in ([], ["-v"]):
        assert main(["show", str(worst), *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("::stop-commands::")
        assert lines[-1] == f"::{lines[0].removeprefix('::stop-commands::')}::"
        assert all(line.isprintable() for line in lines)


def test_a_bad_file_to_write_is_refused_and_said(
    fail: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ("--markdown ./report.json", "--markdown x --sarif x", "--sarif no/x.sarif"):
        monkeypatch.chdir(fail.parent)
        before = fail.read_bytes()
        assert main(["show", str(fail), *arguments.split()]) == 2
        assert fail.read_bytes() == before and not (fail.parent / "x").exists()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["show", str(fail), "--sarif", str(tmp_path / "x.sarif")]) == 2
    said = capsys.readouterr()
    assert "x.sarif: cannot be written: No space left on device" in said.err
    assert said.out.startswith(" FAIL ") and "written:" not in said.out
