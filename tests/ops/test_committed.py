"""The catalogs in docs/ops: whole, with the page that belongs to each, and the README's short table
made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.ops.catalog import Catalog, read
from repro_gate.report import operator_pages, operators
from tests.support.gates import ROOT

COMMITTED = sorted((ROOT / "docs/ops").glob("*.json"))
BEGIN, END = "<!-- operators -->\n", "<!-- /operators -->\n"


def short(catalogs: list[tuple[Path, Catalog]]) -> str:
    """The README's table: what differs without the flags, by catalog."""
    parts = []
    for path, found in catalogs:
        on = f"{found.platform.device_name}, torch {found.platform.torch}, {found.date[:10]}"
        cases = len({row.case for row in found.rows})
        head = (
            f"[{on}](docs/ops/{path.stem}.md): {len(found.rows):,} rows of {cases:,} cases; "
            "without the flags these differ:"
        )
        parts.append("\n".join([head, "", *operator_pages.table(operators.short(found)), ""]))
    return "\n".join(parts)


def test_there_is_a_catalog() -> None:
    assert COMMITTED


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_each_is_whole_and_its_page_says_what_it_holds(path: Path) -> None:
    found = read(path)
    assert found.complete and found.scope == "all" and found.seconds <= 600
    assert found.controls.races.outcome == "differs" and found.controls.repeats.outcome == "repeats"
    assert path.with_suffix(".md").read_text(encoding="utf-8") == operator_pages.markdown(
        operators.page(found)
    )


def test_the_readme_has_the_short_table_of_them() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0] == short([(path, read(path)) for path in COMMITTED])
