"""What stands where a report is to be written is removed first, if it is a file; a device stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.commands.arguments import FORMATS
from repro_gate.commands.output import remove, rendered, show
from tests.support import reports


def test_an_older_report_is_removed_and_a_pipe_or_a_link_stays(tmp_path: Path) -> None:
    old, pipe, link, target = (tmp_path / name for name in ("old.json", "pipe", "link", "target"))
    old.write_text("{}")
    target.write_text("{}")
    os.mkfifo(pipe)
    link.symlink_to(target)
    remove([(FORMATS[0], path) for path in (old, pipe, link, tmp_path / "none")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


@pytest.mark.parametrize("form", FORMATS, ids=[form.option for form in FORMATS])
def test_every_format_is_written(form: object, tmp_path: Path) -> None:
    (given,) = [item for item in FORMATS if item is form]
    path = tmp_path / "report"
    assert show(reports.FAIL, [(given, path)], verbose=False)
    assert path.read_text(encoding="utf-8") == rendered(reports.FAIL, given) and path.stat().st_size > 500
