"""The catalogs in docs/ops: whole, with the page that belongs to each."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.ops.catalog import read
from repro_gate.ops.command import rendered
from tests.support.gates import ROOT

COMMITTED = sorted((ROOT / "docs/ops").glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_each_is_whole_and_its_page_says_what_it_holds(path: Path) -> None:
    found = read(path)
    assert found.complete and found.scope == "all" and found.seconds <= 600
    assert path.with_suffix(".md").read_text(encoding="utf-8") == rendered(found, None, "md")
    assert f"({path.stem}.md)" in (path.parent / "README.md").read_text(encoding="utf-8")
