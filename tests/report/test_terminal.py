"""Claims about `report.terminal`: the answer is in the first line, all that matters is on one
screen, it fits 80 columns, needs no colour, and hostile names stay text. What `-v` adds is
`report.terminal`.

The golden files are what a person sees. To refresh them after a wanted change, then read the
difference: `REPRO_GATE_GOLDEN=write pytest tests/report/test_terminal.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from repro_gate.compare.model import Comparison, Divergence
from repro_gate.report import markdown, terminal, wording
from repro_gate.report.model import Reason, Report, SeedResult, View
from tests.support import reports

_GOLDEN = Path(__file__).parent / "golden"


def _shown(
    report: Report,
    width: int = 80,
    encoding: str = "utf-8",
    colour: bool = False,
    verbose: bool = False,
) -> str:
    """What is printed to a stream of that width and encoding."""
    text = terminal.render(
        report, View(width=width, encoding=encoding, colour=colour, verbose=verbose)
    )
    return text.encode(encoding).decode(encoding)


def _plain(report: Report, verbose: bool = False) -> str:
    return "\n".join(line.rstrip() for line in _shown(report, verbose=verbose).splitlines()) + "\n"


def _whole(report: Report) -> str:
    """What `-v` prints, each run of blanks as one."""
    return " ".join(_plain(report, verbose=True).split())


def _with_source(report: Report, *lines: tuple[int, str]) -> Report:
    """The report with the lines around its cause."""
    assert report.diagnosis is not None
    return replace(report, diagnosis=replace(report.diagnosis, excerpt=lines))


_SOURCE = (
    (39, "def sampler():"),
    (40, "    noise = torch.Generator()"),
    (41, "    noise.seed()"),
    (42, ""),
    (43, "    return noise"),
)
_EXPLAINED = _with_source(reports.EXPLAINED, *_SOURCE)
_WORST = _with_source(
    reports.hostile("word " * 100), *((number, "word " * 100) for number in range(39, 44))
)
_MANY = replace(
    reports.enormous(tensors=31, name=5_000),
    runs=(reports.run("x", outcome="crashed", log_tail=("line",) * 200),) * 30,
)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize(
    "name", ["pass", "fail", "explained", "inconclusive", "locked", "drift", "changed", "weakened"]
)
def test_the_report_reads_as_the_golden_file(name: str, verbose: bool) -> None:
    path = _GOLDEN / f"{name}{'-verbose' if verbose else ''}.txt"
    text = _plain(_EXPLAINED if name == "explained" else reports.ALL[name], verbose)
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", reports.ALL)
def test_the_verdict_is_the_first_word(name: str) -> None:
    assert _plain(reports.ALL[name]).split()[0] == reports.ALL[name].verdict.upper()


@pytest.mark.parametrize(
    "report", [*reports.ALL.values(), _EXPLAINED, _WORST], ids=[*reports.ALL, "source", "long"]
)
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal_but_the_command_to_copy(
    report: Report, width: int, verbose: bool
) -> None:
    for line in _shown(report, width, verbose=verbose).splitlines():
        assert (
            cell_len(line) <= width
            or line.strip().removeprefix("reproduce").strip() == report.reproduce.strip()
        )


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive"])
@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), _EXPLAINED, _WORST, _MANY],
    ids=[*reports.ALL, "source", "long", "many"],
)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_pass_takes_fifteen_lines_and_anything_else_thirty_whatever_it_holds(
    report: Report, verdict: str, width: int
) -> None:
    lines = _shown(replace(report, verdict=verdict), width).splitlines()
    assert len(lines) <= (15 if verdict == "pass" else 30)
    assert lines[0].startswith(f" {verdict.upper()} ") and lines[-1].startswith("  more ")
    if report.reproduce:
        assert lines[-2].startswith("  reproduce    ")


def test_where_there_is_no_room_the_causes_own_line_stays() -> None:
    crowded = replace(
        _with_source(reports.hostile("word " * 100), *_SOURCE),
        verdict="fail",
        reasons=reports.EXPLAINED.reasons,
    )
    lines = _shown(crowded, 40).splitlines()
    assert [line for line in lines if re.match(r"  [> ] *\d+ \| ", line)] == [
        "  > 41 |     noise.seed()"
    ] and len(lines) <= 30


def test_without_a_terminal_no_line_is_wrapped_or_padded() -> None:
    report = replace(reports.FAIL, reasons=(Reason("run/crashed", "word " * 60),))
    for verbose in (False, True):
        lines = terminal.render(report, View(verbose=verbose)).split("\n")
        assert any(("word " * 60).strip() in line for line in lines) and not any(
            line.endswith(" ") for line in lines
        )
    assert max(len(line) for line in lines if line.startswith("Reasons")) == 80


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((10.1, 14.6), "within the budget of 30%"),
        ((31.0, 40.0), "over the budget of 30%"),
        ((20.0, 40.0), "the budget of 30% lies in between, which fails nothing"),
    ],
)
def test_the_whole_interval_decides_about_the_budget(
    bounds: tuple[float, float], words: str
) -> None:
    assert words in " ".join(
        _plain(replace(reports.PASS, cost=replace(reports.COST, ci95=bounds))).split()
    )


def test_a_pass_within_a_tolerance_is_not_sold_as_the_same_bits() -> None:
    for verbose in (False, True):
        assert (
            "not bitwise identical, but within the tolerance"
            in _plain(reports.TOLERATED, verbose).split("\n")[0]
        )


def test_the_log_of_a_run_is_shown_only_where_it_ended_badly() -> None:
    assert "ValueError: boom" in _plain(reports.INCONCLUSIVE)
    well = replace(reports.PASS, runs=(reports.run("default-1", log_tail=("chatter",)),))
    assert "chatter" not in _plain(well)


def test_a_fail_by_a_crash_shows_the_end_of_that_log_and_a_run_that_was_ended_on_purpose_shows_none() -> (
    None
):
    crashed = reports.run(
        "deterministic-2",
        outcome="crashed",
        exit_code=1,
        log_tail=tuple(f"line {number}" for number in range(100, 200)),
    )
    text = _plain(replace(reports.FAIL, runs=(reports.RUNS[0], crashed)))
    assert (
        "end of the log of deterministic-2:\n  | line 192\n" in text
        and "  | line 199\n" in text
        and "line 191" not in text
    )
    ended = reports.run("deterministic-2", outcome="interrupted", exit_code=-9)
    assert "end of the log" not in _plain(replace(reports.FAIL, runs=(reports.RUNS[0], ended)))


def test_runs_that_take_other_numbers_of_steps_are_said_to_end_differently() -> None:
    detail = "deterministic-1 ended well after 5 steps, deterministic-2 crashed after 3 steps"
    ending = Divergence(step=3, kind="optimizer", name="steps", detail=detail)
    pair = Comparison(identical=False, steps=3, tensors=19, differing=0, first_divergence=ending)
    report = replace(reports.FAIL, comparisons=(SeedResult(42, pair),), diagnosis=None)
    text = " ".join(_plain(report).split())
    assert (
        text.startswith(f"FAIL two runs with seed 42 end differently: {detail}")
        and "after the last step" not in text
    )
    assert "differing 0 of 19 tensors differ up to step 3" in text and "at the end" not in text
    assert wording.place_of(ending, 3) == f"in how they end ({detail})"
    assert f"end differently: {detail}" in markdown.comment(report)


def test_a_run_that_failed_is_counted_and_nothing_is_said_to_be_excluded() -> None:
    report = replace(reports.INCONCLUSIVE, comparisons=(SeedResult(42, reports.SAME, 2, 1),))
    assert wording.bound(report) == "2 of 3 identical, 1 ended badly"
    assert report.comparisons[0].bound is None and SeedResult(42, reports.SAME, 2).bound == 77.6


def test_the_command_stays_on_one_line_so_that_it_can_be_copied() -> None:
    command = "repro-gate run repro.yml " + " ".join(
        f"--set train.env.NAME{index}=value" for index in range(12)
    )
    assert f"\n  {command}\n" in _plain(replace(reports.FAIL, reproduce=command), verbose=True)
    assert f"\n  reproduce    {command}\n" in _plain(replace(reports.FAIL, reproduce=command))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_without_unicode_gets_everything_too(encoding: str) -> None:
    text = _shown(reports.hostile("漢字 😀 é"), encoding=encoding)
    assert "FAIL" in text and "\\u6f22" in text


@pytest.mark.parametrize(
    "report", [*reports.ALL.values(), _EXPLAINED], ids=[*reports.ALL, "source"]
)
def test_an_ascii_stream_gets_three_dots_and_eighty_columns(report: Report) -> None:
    cut = replace(report, notes=(Reason("a/note", "word " * 80),))
    for width in (60, 80):
        lines = _shown(cut, width, "ascii").splitlines()
        assert max(map(len, lines)) <= width and not any("\\u2026" in line for line in lines)
    assert ("word..." in _shown(cut, 80, "ascii")) is ("word…" in _shown(cut, 78)), (
        "what is cut is cut in both"
    )


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_hostile_names_reach_the_terminal_as_text_only(name: str) -> None:
    text = _shown(reports.hostile(name + reports.HOSTILE))
    for char in text.replace("\n", ""):
        assert char.isprintable(), f"U+{ord(char):04X}"


def test_markup_and_emoji_codes_of_rich_are_only_text() -> None:
    text = _shown(reports.hostile("[red]x[/red][link=http://e.vil]y[/link]:smiley:"), width=200)
    assert "[red]x[/red][link=http://e.vil]y[/link]:smiley:" in text


def test_ten_thousand_of_everything_and_five_hundred_reasons_stay_a_few_pages() -> None:
    report = reports.enormous(tensors=10_000, name=20_000)
    text = _plain(replace(report, reproduce="repro-gate run"), verbose=True)
    assert len(text.splitlines()) < 1_800 and "and 480 more" in text


def test_what_a_change_weakens_stands_above_the_reasons_with_key_and_line() -> None:
    text = _plain(replace(reports.WEAKENED, reasons=reports.FAIL.reasons), verbose=True)
    assert (
        text.index("Weakened checks")
        < text.index("repro.yml:12 determinism.allow")
        < text.index("determinism/diverged")
    )
    assert (
        "The base is origin/main at 89abcdef0123; the verdict is by the spec of this change itself"
        in " ".join(text.split())
    )
    for item in reports.WEAKENED.base.weakened if reports.WEAKENED.base else ():
        assert item.key in text and item.message in " ".join(text.split())
        for verdict in ("pass", "fail", "inconclusive"):
            quiet = " ".join(_plain(replace(reports.WEAKENED, verdict=verdict)).split())
            assert (
                f"weakened {f'{item.where} ' if item.where else ''}{item.key}: {item.message}"
                in quiet
            )


def test_long_lists_of_inputs_facts_and_weakenings_are_capped_and_counted() -> None:
    text = _whole(reports.enormous(tensors=31, name=10))
    assert (
        "and 11 more inputs" in text
        and "and 11 more facts" in text
        and "and 11 more, all in the JSON report" in text
    )


def test_many_seeds_are_counted_and_the_first_that_differs_is_shown() -> None:
    report = replace(
        reports.FAIL, comparisons=(SeedResult(1, reports.SAME), SeedResult(2, reports.DIFFERENT))
    )
    text = _plain(report)
    assert (
        "two runs with seed 2 diverge at step 3 (1 of 2 seeds)" in text
        and "1 same, 2 differs" in text
    )
