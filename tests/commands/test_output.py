"""What stands where a report is to be written is removed first, if it is a file; a device stays."""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.commands.arguments import FORMATS
from repro_gate.commands.output import make_empty, remove, show, writable
from tests.support import reports
from tests.support.gates import training


def test_every_format_is_written_and_an_older_file_removed(tmp_path: Path) -> None:
    for form in FORMATS.values():
        path = tmp_path / "report"
        assert show(reports.FAIL, [(form, path)], verbose=False)
        render = pkgutil.resolve_name(f"repro_gate.report.{form}")
        assert path.read_text(encoding="utf-8") == render(reports.FAIL)
        assert path.stat().st_size > 50
        path.unlink()
    old, pipe, link, target = (tmp_path / name for name in ("old.json", "pipe", "link", "target"))
    old.write_text("{}")
    target.write_text("{}")
    os.mkfifo(pipe)
    link.symlink_to(target)
    remove([("json", path) for path in (old, pipe, link, tmp_path / "none")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


def test_bad_trace_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = training(tmp_path / "code", "raise SystemExit('it was started')")
    (tmp_path / "file").touch()
    for name in ("file", "file/x", "code"):  # a file, below one, not empty
        assert main(["run", str(code), "--keep-traces", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert f"--keep-traces {tmp_path / name}: " in said and "deterministic-1" not in said
    make_empty(tmp_path / "new/folder")
    assert (tmp_path / "new/folder").is_dir()


def test_nothing_is_written_through_a_link_that_leads_out_of_its_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = training(tmp_path / "code", "raise SystemExit('it was started')")
    (code / ".git").mkdir()
    (tmp_path / "mine").write_text("kept")
    (code / "report.json").symlink_to(tmp_path / "mine")
    (code / "out").symlink_to(tmp_path)
    (code / "latest.json").symlink_to("1.json")
    for option, name in (
        ("--json", "report.json"),
        ("--html", "out/x"),
        ("--keep-traces", "out/t"),
    ):
        assert main(["run", str(code), option, str(code / name)]) == 2
        assert "a link leads to where it lies outside the checkout" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "kept" and not (tmp_path / "t").exists()
    for path in (code / "latest.json", code / "new.json", tmp_path / "new", Path("/dev/stdout")):
        writable(path)
