"""Claims about `report.terminal`: the answer is in the first line, it fits 80 columns, needs no colour, and hostile names stay text.

The golden files are what a person sees. To refresh them after a wanted change, then read the difference:
`REPRO_GATE_GOLDEN=write pytest tests/report/test_terminal.py`.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from repro_gate.report import terminal
from repro_gate.report.model import Report, SeedResult

from . import samples

_GOLDEN = Path(__file__).parent / "golden"


def _shown(report: Report, width: int = 80, encoding: str = "utf-8", colour: bool = False) -> str:
    """What `render` prints to a stream of that width and encoding."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
    system = "truecolor" if colour else None
    terminal.render(report, Console(file=stream, width=width, color_system=system, force_terminal=colour, legacy_windows=False))  # type: ignore[arg-type]
    stream.flush()
    return raw.getvalue().decode(encoding)


def _plain(report: Report) -> str:
    return "\n".join(line.rstrip() for line in _shown(report).splitlines()) + "\n"


@pytest.mark.parametrize("name", ["pass", "fail", "inconclusive"])
def test_the_report_reads_as_the_golden_file(name: str) -> None:
    path = _GOLDEN / f"{name}.txt"
    text = _plain(samples.ALL[name])
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", samples.ALL)
def test_the_verdict_is_the_first_word(name: str) -> None:
    assert _plain(samples.ALL[name]).split()[0] == samples.ALL[name].verdict.upper()


@pytest.mark.parametrize("report", [*samples.ALL.values(), samples.hostile("word " * 100)], ids=[*samples.ALL, "long"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_but_the_command_to_copy(report: Report, width: int) -> None:
    for line in _shown(report, width).splitlines():
        assert cell_len(line) <= width or line.strip() == report.reproduce.strip()


def test_a_fail_says_what_parts_why_and_what_to_do() -> None:
    text = _plain(samples.FAIL)
    for words in ("step 3, gradient of blocks.3.attn.weight", "3 ULP", "14 of 202", "determinism/diverged", "remedy: See what feeds"):
        assert words in text
    assert text.index("gradient of") < text.index("determinism/diverged") < text.index("noise floor") < text.index("Checklist")


def test_a_floor_of_zero_a_negative_cost_and_a_suspicion_are_said() -> None:
    text = " ".join(_plain(samples.FASTER).split())
    assert "this workload repeats its bits here without the flags" in text
    assert "72.0% faster" in text and "-72.0%" not in text.replace("72.0% faster", "")
    assert "suspicious: -72" in text and "not finite: nan at step 7, inf at step 8" in text


def test_a_cost_whose_interval_holds_zero_is_not_called_slower() -> None:
    text = _plain(replace(samples.PASS, cost=replace(samples.COST, determinism_cost_pct=0.7, ci95=(-92.0, 92.0)), cost_budget_pct=None))
    assert "no measurable difference (+0.7%)" in text and "slower" not in text


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((10.1, 14.6), "within the budget of 30%"), ((31.0, 40.0), "over the budget of 30%"), ((20.0, 40.0), "30% lies inside the interval")],
)
def test_the_whole_interval_decides_about_the_budget(bounds: tuple[float, float], words: str) -> None:
    assert words in " ".join(_plain(replace(samples.PASS, cost=replace(samples.COST, ci95=bounds))).split())


def test_a_pass_within_a_tolerance_is_not_sold_as_the_same_bits() -> None:
    first = _plain(samples.TOLERATED).split("\n")[1]
    assert "not the same bits, but within the tolerance" in first


def test_the_log_of_a_run_is_shown_only_where_it_ended_badly() -> None:
    assert "ValueError: boom" in _plain(samples.INCONCLUSIVE)
    well = replace(samples.PASS, runs=(samples.run("default-1", log_tail=("chatter",)),))
    assert "chatter" not in _plain(well)


def test_the_command_stays_on_one_line_so_that_it_can_be_copied() -> None:
    command = "repro-gate run repro.yml " + " ".join(f"--set train.env.NAME{index}=value" for index in range(12))
    assert f"\n  {command}\n" in _plain(replace(samples.FAIL, reproduce=command))


def test_colour_adds_nothing_to_the_words() -> None:
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", _shown(samples.FAIL, colour=True))
    assert coloured.split() == _shown(samples.FAIL).split()
    assert "\x1b[" in _shown(samples.FAIL, colour=True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_without_unicode_gets_everything_too(encoding: str) -> None:
    text = _shown(samples.hostile("漢字 😀 é"), encoding=encoding)
    assert "FAIL" in text and "\\u6f22" in text


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_hostile_names_reach_the_terminal_as_text_only(name: str) -> None:
    text = _shown(samples.hostile(name + samples.HOSTILE))
    for char in text.replace("\n", ""):
        assert char.isprintable(), f"U+{ord(char):04X}"


def test_markup_and_emoji_codes_of_rich_are_only_text() -> None:
    text = _shown(samples.hostile("[red]x[/red][link=http://e.vil]y[/link]:smiley:"), width=200)
    assert "[red]x[/red][link=http://e.vil]y[/link]:smiley:" in text


def test_ten_thousand_tensors_and_five_hundred_reasons_stay_a_page() -> None:
    report = samples.enormous(tensors=10_000, name=20_000)
    text = _plain(replace(report, reproduce="repro-gate run"))
    assert len(text.splitlines()) < 700 and "and 480 more" in text


def test_many_seeds_are_counted_and_the_first_that_differs_is_shown() -> None:
    report = replace(samples.FAIL, comparisons=(SeedResult(1, samples.SAME), SeedResult(2, samples.DIFFERENT)))
    text = _plain(report)
    assert "two runs with seed 2 part at step 3 (1 of 2 seeds)" in text and "1 same  2 differs" in text
