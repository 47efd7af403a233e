"""Claims about `report.rows`: rows fit into the lines that there are, and what matters least goes
first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from repro_gate.report.widgets import Row, fitted


def row(label: str, *lines: str, **more: object) -> Row:
    return Row(label=label, lines=tuple(Text(line) for line in lines), **more)  # type: ignore[arg-type]


def shown(groups: Sequence[Sequence[Row]], width: int = 40, most: int = 100) -> list[str]:
    return [line.plain for line in fitted(groups, width, most)]


def test_what_does_not_fit_its_row_ends_with_an_ellipsis_and_what_fits_does_not() -> None:
    text = "one two three four five six seven eight nine ten"
    assert shown([[row("a", text, most=1)]]) == ["  a            one two three four five…"]
    assert shown([[row("a", "one", "two", most=2)]]) == ["  a            one", "               two"]


def test_a_line_to_copy_is_never_broken_and_a_cut_one_keeps_to_the_width() -> None:
    assert shown([[row("a", "x" * 99, form="whole")]]) == ["  a            " + "x" * 99]
    assert shown([[row("", "x" * 99, form="cut")]]) == ["  " + "x" * 37 + "…"]


def test_the_least_goes_first_and_no_more_than_has_to() -> None:
    groups = [
        [
            row("keep", "k"),
            row("note", "a", "b", "c", rank=2, most=3),
            row("extra", "e", rank=5),
            row("fact", "f", rank=4),
        ]
    ]
    assert len(shown(groups)) == 6
    assert [line.strip() for line in shown(groups, most=5)] == [
        "keep         k",
        "note         a",
        "b",
        "c",
        "fact         f",
    ]
    assert len(shown(groups, most=4)) == 4 and "fact" not in "".join(shown(groups, most=4))
    assert [line.strip() for line in shown(groups, most=2)] == ["keep         k", "note         a…"]
    assert [line.strip() for line in shown(groups, most=0)] == ["keep         k"]


def test_where_room_is_short_a_row_has_three_lines_and_a_log_its_last_ones() -> None:
    groups = [
        [row("", "1", "2", "3", "4", rank=2, most=4, form="cut"), row("a", *"1234", rank=2, most=4)]
    ]
    assert shown(groups, most=7)[:3] == ["  2", "  3", "  4"]
    assert shown(groups, most=6)[-1].endswith("3…")
