"""The catalogs in docs/ops: whole, with the page that belongs to each, and the short table made from
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.escape import for_markdown
from repro_gate.ops.catalog import Catalog, Row, read
from repro_gate.ops.command import rendered
from tests.support.gates import ROOT

COMMITTED = sorted((ROOT / "docs/ops").glob("*.json"))
BEGIN, END = "<!-- operators -->\n", "<!-- /operators -->\n"
COLUMNS = ("operator", "pass", "dtypes that differ", "with the flags", "time on / off, at most")


def short(path: Path, found: Catalog) -> str:
    """What differs without the flags, a line for each operator and pass."""
    cases = len({row.case for row in found.rows})
    on = f"{found.platform.device_name}, torch {found.platform.torch}, {found.date[:10]}"
    head = f"[{on}]({path.stem}.md): {len(found.rows):,} rows of {cases:,} cases"
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        if row.off.outcome == "differs":
            groups.setdefault((row.operator, row.direction), []).append(row)
    columns = (*COLUMNS, "torch documents")
    lines = [f"{head}; without the flags these differ:", "", f"| {' | '.join(columns)} |"]
    lines += [f"| {' | '.join('---' for _ in columns)} |"]
    for key, rows in groups.items():
        dearest = max((row.price.ratio for row in rows if row.price is not None), default=None)
        cells = (
            *key,
            ", ".join(dict.fromkeys(row.dtype for row in rows)),
            ", ".join(dict.fromkeys(row.on.outcome for row in rows)),
            "" if dearest is None else f"{dearest:.1f}",
            next((row.documented for row in rows if row.documented), "no"),
        )
        lines.append(f"| {' | '.join(cell and for_markdown(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def test_their_page_has_the_short_table_of_them() -> None:
    text = (ROOT / "docs/ops/README.md").read_text(encoding="utf-8")
    assert COMMITTED
    assert text.split(BEGIN)[1].split(END)[0] == "\n".join(short(p, read(p)) for p in COMMITTED)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_each_is_whole_and_its_page_says_what_it_holds(path: Path) -> None:
    found = read(path)
    assert found.complete and found.scope == "all" and found.seconds <= 600
    assert path.with_suffix(".md").read_text(encoding="utf-8") == rendered(found, None, "md")
