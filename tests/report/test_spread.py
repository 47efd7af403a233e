"""Claims about `report.heat_map.spread`: where two runs differ, in one sentence."""

from __future__ import annotations

import pytest

from repro_gate.compare.model import Divergence, HeatMap, HeatRow
from repro_gate.report.heat_map import spread
from tests.support import reports

_GRADIENT = Divergence(step=1, kind="gradient", name="a.b.weight", process="main")


def _map(*rows: tuple[str, str, str], steps: int = 4, width: int = 1, depth: int = 2) -> HeatMap:
    drawn = tuple(HeatRow("main", kind, name, 1, cells) for kind, name, cells in rows)
    return HeatMap(steps=steps, width=width, depth=depth, rows=drawn)


@pytest.mark.parametrize(
    ("rows", "first", "sentence"),
    [
        # the first divergence names the part; all that is recorded differs from step 2 on
        (
            (("loss", "", " ..07"), ("gradient", "a.b", " .5f?")),
            _GRADIENT,
            "first gradient a.b, then everything from step 2 on",
        ),
        # a part that never differs
        (
            (("loss", "", " ..07"), ("gradient", "a.b", " .5f?"), ("parameter", "a.b", ".....")),
            _GRADIENT,
            "first gradient a.b, then 2 of 3 parts of the training",
        ),
        # one that is equal again at the end
        (
            (("loss", "", " .07."), ("gradient", "a.b", " .5f?")),
            _GRADIENT,
            "first gradient a.b, then 2 of 2 parts of the training",
        ),
        # no row has the first divergence: the part that differs first is named
        (
            (("loss", "", " ..07"), ("gradient", "a.b", " .5f?")),
            Divergence(step=0, kind="artifact", name="a.pt"),
            "first gradient a.b, then everything from step 2 on",
        ),
        # before the first step
        ((("parameter", "a", "9777"),), None, "first parameter a, then everything from step 0 on"),
        ((("loss", "", " ...."),), None, ""),
        ((), None, ""),
        ((("loss", "", ""), ("gradient", "a", "")), None, ""),
    ],
)
def test_the_sentence_names_the_first_part_and_when_everything_differs(
    rows: tuple[tuple[str, str, str], ...], first: Divergence | None, sentence: str
) -> None:
    assert spread(_map(*rows), first) == sentence


def test_steps_share_columns_and_a_report_may_name_any_step_and_path() -> None:
    cells = " " + "." * 77 + "1" * 23
    drawn = _map(("loss", "", cells), steps=1_000, width=10)
    assert spread(drawn, None) == "first loss, then everything from step 770 on"
    far = Divergence(step=10**27, kind="loss", name="loss")
    assert "first loss" in spread(_map(("loss", "", ".?"), steps=10**28), far)
    each_cells = [".." if number == 0 else ".?" for number in range(300)]
    rows = tuple(
        HeatRow(f"rank{n}", "loss", "a." * 500 + str(n), 1, each)
        for n, each in enumerate(each_cells)
    )
    assert "299 of 300 parts" in spread(HeatMap(steps=1, width=1, depth=9, rows=rows), None)
    for name in (reports.HOSTILE, "a\n→ loss", "x" * 5_000):
        text = spread(_map(("gradient", name, " ..1."), ("loss", "", " ..1.")), None)
        assert text.isprintable() and len(text) < 120
