"""The terminal: the answer is in the first line, all that matters is on one screen, it fits 80
columns, needs no colour, and hostile names stay text; the checklist has the worst first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult, EvidenceLine
from repro_gate.compare.model import Comparison, Divergence, Tally
from repro_gate.diagnosis.model import ShownUse
from repro_gate.report import document as report_document
from repro_gate.report import markdown, terminal, wording
from repro_gate.report.model import Reason, Report, View
from repro_gate.report.terminal import checklist_json, render_checklist
from tests.support import reports
from tests.support.golden import golden

_GOLDEN = Path(__file__).parent / "golden"


def _shown(report: Report, width: int = 80, encoding: str = "utf-8", verbose: bool = False) -> str:
    """What is printed to a stream of that width and encoding."""
    text = terminal.render(report, View(width=width, encoding=encoding, verbose=verbose))
    return text.encode(encoding).decode(encoding)


def _plain(report: Report, verbose: bool = False) -> str:
    lines = _shown(report, verbose=verbose).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


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
_EACH = {**reports.ALL, "source": _EXPLAINED, "long": _WORST, "many": _MANY}


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize(
    "name", ["pass", "fail", "explained", "inconclusive", "locked", "drift", "changed", "weakened"]
)
def test_the_report_reads_as_the_golden_file(name: str, verbose: bool) -> None:
    path = _GOLDEN / f"{name}{'-verbose' if verbose else ''}.txt"
    text = _plain(_EXPLAINED if name == "explained" else reports.ALL[name], verbose)
    golden(path, text)


@pytest.mark.parametrize("report", _EACH.values(), ids=_EACH)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_pass_takes_fifteen_lines_and_the_rest_thirty(report: Report, width: int) -> None:
    for verbose in (False, True):
        for line in _shown(report, width, verbose=verbose).splitlines():
            # but the command to copy
            bare = line.strip().removeprefix("reproduce").strip()
            assert cell_len(line) <= width or bare == report.reproduce.strip()
    for verdict, most in (("pass", 15), ("fail", 30), ("inconclusive", 30)):
        lines = _shown(replace(report, verdict=verdict), width).splitlines()
        assert len(lines) <= most
        assert lines[0].startswith(f" {verdict.upper()} ") and lines[-1].startswith("  more ")
        assert not report.reproduce or lines[-2].startswith("  reproduce    ")


def test_the_first_words_name_what_failed_or_on_what_a_pass_depends() -> None:
    text = " ".join(_plain(reports.RESUMED).split())
    failed = "resumed at step 6, it is not the same training: the state of the torch generator"
    assert text.startswith(f"FAIL {failed} differs remedy save the named state")
    assert "bitwise identical:" not in text and text.count(failed) == 1
    for name, words in (
        ("equivalent/differs", "accumulation is not the same training"),
        ("cost/over-budget", "determinism costs +40.0 %"),
        ("code/clean", "1 uncommitted paths are part of what runs"),
        ("random-state/robust", "repeatable, but not robust"),
    ):
        report = replace(reports.PASS, verdict="fail", reasons=(Reason(name, words),))
        assert _plain(report).startswith(f" FAIL   {words}\n")
    text = _plain(reports.CONDITIONAL)
    words = (
        "PASS   only with PYTHONHASHSEED=42: without it the runs differ because of src/data.py:6"
    )
    assert " ".join(text.split()).startswith(" ".join(words.split()))
    assert text.count("repeatable, but not robust") == 1
    for verbose in (False, True):
        view = View(colour=True, verbose=verbose)
        badges = [
            terminal.render(it, view).split("PASS")[0] for it in (reports.CONDITIONAL, reports.PASS)
        ]
        assert badges[0] != badges[1]
    also = replace(reports.SHELL, factor="listing", cause="file-order", file="", line=0)
    for diagnosis, condition in (
        (also, "only with the same order of listings: without it the runs differ"),
        (replace(reports.SHELL, also=(also,)), "only with PYTHONHASHSEED=42 and the same order of"),
        (replace(also, factor="clock"), "only with the same time of day and durations: without it"),
        (
            replace(also, one_of=(ShownUse(factor="path", call=""),)),
            "only while nothing around the training",
        ),
    ):
        line = wording.headline(replace(reports.CONDITIONAL, diagnosis=diagnosis))
        assert wording.plain_text(line).startswith(condition)


def test_lines_are_cut_for_a_terminal_alone() -> None:
    crowded = _with_source(reports.hostile("word " * 100), *_SOURCE)
    crowded = replace(crowded, verdict="fail", reasons=reports.EXPLAINED.reasons)
    lines = _shown(crowded, 40).splitlines()
    source = [line for line in lines if re.match(r"  [> ] *\d+ \| ", line)]
    assert source == ["  > 41 |     noise.seed()"] and len(lines) <= 30
    long = ("word " * 60).strip()
    report = replace(reports.FAIL, reasons=(Reason("run/crashed", long),))
    for verbose in (False, True):
        lines = terminal.render(report, View(verbose=verbose)).split("\n")
        assert any(long in line for line in lines)
        assert not any(line.endswith(" ") for line in lines)
        heads = {len(line) for line in lines if line.startswith("Checklist")}
        assert heads == ({80} if verbose else set())
    command = "repro-gate run repro.yml " + " ".join(f"--set train.env.N{n}=v" for n in range(12))
    report = replace(reports.FAIL, reproduce=command)
    assert f"\n  {command}\n" in _plain(report, verbose=True)
    assert f"\n  reproduce    {command}\n" in _plain(report)


def test_the_whole_interval_decides_about_the_budget() -> None:
    for bounds, words in (
        ((10.1, 14.6), "within the budget of 30%"),
        ((31.0, 40.0), "over the budget of 30%"),
        ((20.0, 40.0), "the interval contains the budget of 30%"),
    ):
        report = replace(reports.PASS, cost=replace(reports.COST, ci95=bounds))
        assert words in " ".join(_plain(report).split())
        tolerated = _plain(reports.TOLERATED).split("\n")[0]
        assert "not bitwise identical, but within the tolerance" in tolerated


def test_the_end_of_a_log_is_shown_only_where_its_run_ended_badly() -> None:
    log = tuple(f"line {number}" for number in range(100, 200))

    def shown(**run: object) -> str:
        last = reports.run("deterministic-2", **run)
        return _plain(replace(reports.FAIL, runs=(reports.RUNS[0], last)))

    text = shown(outcome="crashed", exit_code=1, log_tail=log)
    assert "End of the log of deterministic-2:\n  | line 192\n" in text
    assert "  | line 199\n" in text and "line 191" not in text
    for ended in (shown(log_tail=log), shown(outcome="interrupted", exit_code=-9)):
        assert "End of the log" not in ended and "line 199" not in ended


@pytest.mark.parametrize("name", [*reports.ALL, "source"])
def test_an_ascii_stream_gets_three_dots_and_eighty_columns(name: str) -> None:
    cut = replace(_EACH[name], notes=(Reason("a/note", "word " * 80),))
    for width in (60, 80):
        lines = _shown(cut, width, "ascii").splitlines()
        assert max(map(len, lines)) <= width and not any("\\u2026" in line for line in lines)
    # what is cut is cut in both
    assert ("word..." in _shown(cut, 80, "ascii")) is ("word…" in _shown(cut, 78))


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
@example("[red]x[/red][link=http://e.vil]y[/link]:smiley:")
def test_hostile_names_reach_the_terminal_as_text_only(name: str) -> None:
    for char in _shown(reports.hostile(name + reports.HOSTILE)).replace("\n", ""):
        assert char.isprintable(), f"U+{ord(char):04X}"
    if name.startswith("[red]"):  # markup and emoji codes of Rich are only text
        assert name in _shown(reports.hostile(name), width=200)
    for encoding in ("ascii", "latin-1", "cp1252"):
        assert "\\u6f22" in _shown(reports.hostile("漢字 😀 é"), encoding=encoding)


def test_much_of_everything_stays_a_few_pages_with_a_count_at_the_end() -> None:
    report = replace(reports.enormous(name=20_000), reproduce="repro-gate run")
    text = _plain(report, verbose=True)
    assert len(text.splitlines()) < 2_100 and "and 476 more" in text
    text = " ".join(_plain(reports.enormous(tensors=31, name=10), verbose=True).split())
    for words in ("11 more inputs", "11 more facts", "11 more, all in the JSON report"):
        assert f"and {words}" in text
    for width in (20, 80, 200):
        last = _checklist(_RESULTS, _NEED_TRAINING, width).splitlines()[-1]
        assert last.startswith("checklist: 2 of 5 passed; 1 fail: code/workflow-pins; ")
        assert last.endswith("; 3 need training (repro-gate run)")
        assert "1 needs training" in _checklist(_RESULTS[:1], ("env/cuda",), width).splitlines()[-1]
        assert _checklist((), (), width).splitlines()[-1] == "checklist: nothing checked"
    for encoding in ("ascii", "latin-1", "cp1252"):
        text = _checklist(_hostile("漢字 😀 é"), encoding=encoding)
        assert "\\u6f22" in text and "checklist: 1 of 4 passed" in text


def test_what_a_change_weakens_stands_above_all_other_sections_with_key_and_line() -> None:
    text = _plain(replace(reports.WEAKENED, reasons=reports.FAIL.reasons), verbose=True)
    order = ("Weakened checks", "repro.yml:12 determinism.allow", "Cost and time")
    assert sorted(order, key=text.index) == [*order]
    assert reports.WEAKENED.base is not None
    for verdict in ("pass", "fail", "inconclusive"):
        quiet = " ".join(_plain(replace(reports.WEAKENED, verdict=verdict)).split())
        for item in reports.WEAKENED.base.weakened:
            assert (
                " ".join(f"weakened {item.location or ''} {item.key}: {item.message}".split())
                in quiet
            )


def test_seeds_runs_that_end_differently_and_those_that_failed_are_counted_and_told() -> None:
    seeds = reports.compared(reports.SAME, reports.DIFFERENT)
    text = _plain(replace(reports.FAIL, determinism=seeds))
    assert "two runs with seed 2 diverge at step 3 (1 of 2 seeds)" in text
    assert "1 same, 2 differs" in text
    failed = reports.compared(reports.SAME, failed=1)
    report = replace(reports.INCONCLUSIVE, determinism=failed)
    assert wording.bound(report) == "2 of 3 identical over 50 steps, 1 ended badly"
    equal = reports.compared(reports.SAME)
    assert failed is not None and equal is not None
    assert failed.bound_pct is None and equal.bound_pct == 77.6
    detail = "deterministic-1 ended well after 5 steps, deterministic-2 crashed after 3 steps"
    ending = Divergence(step=3, kind="optimizer", name="steps", detail=detail)
    pair = Comparison(identical=False, steps=3, tensors=19, differing=0, first_divergence=ending)
    report = replace(reports.FAIL, determinism=reports.compared(pair), diagnosis=None)
    text = " ".join(_plain(report).split())
    assert text.startswith(f"FAIL two runs with seed 42 end differently: {detail}")
    assert "after the last step" not in text and "at the end" not in text
    assert f"end differently: {detail}" in markdown.comment(report)


def test_below_a_loss_that_diverges_no_count_of_equal_tensors_stands_for_it() -> None:
    first = Divergence(step=2, kind="loss", name="loss")
    kinds = {"loss": Tally(1, 1), "parameter": Tally(62, 0)}
    more = {"by_kind": kinds, "first_divergence": first, "differing_steps": 1}
    pair = Comparison(identical=False, steps=3, tensors=62, differing=0, **more)
    report = replace(reports.FAIL, determinism=reports.compared(pair), diagnosis=None)
    assert "differing: loss 1 of 1, in 1 of 3 steps" in _plain(report)
    missing = Divergence(step=-1, kind="parameter", name="process rank1", detail="only the first")
    pair = replace(pair, by_kind={}, first_divergence=missing, differing_steps=0)
    report = replace(report, determinism=reports.compared(pair))
    assert "differing" not in _plain(report) and "process rank1" in _plain(report)


_CHECKLIST = Path(__file__).parent / "golden" / "checklist.txt"
_RESULTS = (
    reports.check("code/committed", "pass", "commit 0123456789ab", ("repro.yml",)),
    reports.check("code/license", "skip", "nothing to look at"),
    reports.check(
        "code/submodules", "waived", "libs/ops is not there: waived, vendored", ("libs/ops",)
    ),
    replace(
        reports.CHECKLIST[0],
        id="code/tree-clean",
        message="2 files have changes",
        evidence=(EvidenceLine("train.py"), EvidenceLine("model.py")),
    ),
    reports.check(
        "code/workflow-pins",
        "fail",
        "7 actions are not pinned",
        tuple(f"ci.yml:{n}" for n in range(7)),
        "pin each by commit",
    ),
    reports.CHECKLIST[1],
)
_NEED_TRAINING = ("code/opened-files", "hardware/device", "hardware/same-model")


def _checklist(
    results: tuple[CheckResult, ...],
    need_training: tuple[str, ...] = (),
    width: int = 80,
    encoding: str = "utf-8",
) -> str:
    text = render_checklist(results, need_training, View(width=width, encoding=encoding))
    return text.encode(encoding).decode(encoding)


def _hostile(text: str) -> tuple[CheckResult, ...]:
    found = reports.check(text, "fail", text, (text, text), text)
    return tuple(replace(found, category="code", status=status) for status in STATUSES)


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_hostile_texts_reach_the_terminal_as_text_only_and_machines_as_json(name: str) -> None:
    results = _hostile(name + reports.HOSTILE)
    for char in _checklist(results).replace("\n", ""):
        assert char.isprintable(), f"U+{ord(char):04X}"
    document = json.loads(checklist_json(results, name))
    assert document["counts"] == dict.fromkeys(STATUSES, 1)


def test_the_checklist_reads_as_the_golden_file_and_as_json_holds_every_result() -> None:
    many = (
        replace(_RESULTS[0], evidence=tuple(EvidenceLine(str(number)) for number in range(500))),
        *_RESULTS[1:],
    )
    found = json.loads(checklist_json(many, "repro.yml", _NEED_TRAINING))
    assert (found["schema"], found["spec"]) == ("repro-gate/checklist/v1", "repro.yml")
    assert found["tool_version"] == __version__
    assert found["counts"] == {"pass": 2, "warn": 1, "fail": 1, "skip": 1, "waived": 1}
    assert found["coverage"][0] == {"category": "code", "passed": 1, "made": 4}
    assert found["need_training"] == list(_NEED_TRAINING)
    whole = report_document.to_json(replace(reports.PASS, checklist=many))
    assert found["checklist"] == whole["checklist"]
    lines = _checklist(_RESULTS, _NEED_TRAINING).splitlines()
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    golden(_CHECKLIST, text)
