"""Claims about `report.text_map`."""

from __future__ import annotations

from repro_gate.compare.model import Divergence, HeatMap, HeatRow
from repro_gate.report.heat_map import COLUMNS, ROWS, text_map
from tests.support import reports


def _map(*rows: tuple[str, str, str], steps: int = 4, width: int = 1, depth: int = 2) -> HeatMap:
    return HeatMap(
        steps=steps,
        width=width,
        depth=depth,
        rows=tuple(HeatRow("main", kind, name, 1, cells) for kind, name, cells in rows),
    )


def _drawn(found: HeatMap) -> str:
    """The map with the first divergence that it shows."""
    differing = [
        (column, number)
        for number, row in enumerate(found.rows)
        for column, cell in enumerate(row.cells)
        if cell not in " ."
    ]
    if not differing:
        return text_map(found, None)
    column, number = min(differing)
    row = found.rows[number]
    name = f"{row.module}.weight" if row.module else row.kind
    step = (column - 1) * found.width
    return text_map(found, Divergence(step=step, kind=row.kind, name=name, process=row.process))


_SMALL = _map(("loss", "", " ..07"), ("gradient", "a.b", " .5f?"), ("parameter", "a.b", "....."))


def test_the_map_reads_as_it_should_and_its_arrows_point_at_the_divergence() -> None:
    assert _drawn(_SMALL).splitlines() == [
        "                   ↓ first divergence",
        "  loss            ··░░",
        "→ gradient a.b    ·░▒?",
        "  parameter a.b  ·····",
        "",
        "left column: before the first step; then steps 0 to 3",
        (
            "· identical   ░ below 256 ULP   ▒ below 65,536   ▓ below 1,048,576   █ more   ? by an "
            "unknown distance"
        ),
    ]
    told = Divergence(step=2, kind="loss", name="loss")
    initial = _map(("parameter", "a", "9...."))
    for text, at, cell in (
        (_drawn(_SMALL), 1, "░"),
        (text_map(_SMALL, told), 0, "░"),
        (_drawn(initial), 0, "▒"),
    ):
        head, *rows = _lines(text)
        assert [row.startswith("→") for row in rows].index(True) == at
        assert sum(row.startswith("→") for row in rows) == 1 and rows[at][head.index("↓")] == cell


def _lines(text: str) -> list[str]:
    return text.split("\n\n")[0].splitlines()


def test_without_a_difference_there_is_no_arrow_and_without_rows_no_map() -> None:
    same, nowhere = _map(("loss", "", " ....")), Divergence(step=0, kind="artifact", name="a.pt")
    assert not {"→", "↓"} & {*_drawn(same)} and "divergence" not in _drawn(same)
    assert _drawn(_map()) == ""
    assert "→" not in text_map(_SMALL, nowhere)  # no row has it
    first = Divergence(step=2, kind="loss", name="loss")
    for name in (reports.HOSTILE, "a\n→ loss ····", "x" * 5_000):
        drawn = _map(("gradient", name, " ..1."), ("loss", "", " ..1."))
        lines = _lines(text_map(drawn, first))
        assert len(lines) == 3 and all(len(line) < 60 and line.isprintable() for line in lines)


def test_many_rows_are_joined_or_those_that_differ_first_stay_and_steps_share_columns() -> None:
    rows = [
        ("gradient", f"layers.{layer}.{part}", " ...1" if layer else " .0.k")
        for layer in range(6)
        for part in "qkvom"
    ]
    lines = _lines(_drawn(_map(*rows, depth=3)))[1:]
    assert len(lines) == 6 and lines[1].split()[:2] == ["gradient", "layers.1"]
    assert lines[0].endswith(" ·░·█") and lines[1].endswith(" ···░")
    rows = tuple(
        HeatRow(f"rank{rank}", "loss", "", 1, " ." + ("1" if rank > 40 else "."))
        for rank in range(64)
    )
    lines = _lines(_drawn(HeatMap(steps=2, width=1, depth=0, rows=rows)))
    assert lines[1].startswith("  rank0 loss") and lines[2].startswith("→ rank41 loss")
    assert lines[-2].startswith("  rank63") and lines[-1] == "  and 40 more rows"
    assert len(lines) == ROWS + 2
    cells = " " + "." * 77 + "1" + "." * 22
    text = _drawn(_map(("loss", "", cells), steps=1_000, width=10))
    head, row = _lines(text)
    assert row[head.index("↓")] == "░" and row.count("░") == 1 and row.count("·") <= COLUMNS
    assert "steps 0 to 999, 30 a column" in text


def test_a_report_may_name_any_step_and_any_path_and_no_cell_at_all() -> None:
    """A foreign report is valid by its schema: the map stays as large as its cells."""
    far = _map(("loss", "", ".?"), steps=10**28)
    assert len(text_map(far, Divergence(step=10**27, kind="loss", name="loss"))) < 400
    deep = HeatMap(
        steps=1,
        width=1,
        depth=9,
        rows=tuple(HeatRow(f"rank{n}", "loss", "a." * 500 + str(n), 1, ".?") for n in range(300)),
    )
    assert "and 276 more rows" in _drawn(deep)
    assert _drawn(_map(("loss", "", ""), ("gradient", "a", ""), steps=0)).startswith("  loss")
