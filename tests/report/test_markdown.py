"""The comment and the summary: without a click a reviewer knows what diverged, where, why and what
determinism costs; whatever a report holds, nothing of it is live, and it fits. The golden files are
comments as they are posted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.pages import reasons
from repro_gate.compare.model import HeatMap, HeatRow
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.diagnosis.robustness import at_line
from repro_gate.report import exports, html, markdown, terminal
from repro_gate.report.markdown import comment, mark
from repro_gate.report.model import Origin, Reason, Report, View, WeakenedCheck
from tests.support import reports
from tests.support.golden import golden
from tests.support.uses import use

# the report links these to their pages, and Hypothesis finds them in the sources
OWN_IDS = {*reasons(), *(item.id for item in ALL)}
_ORIGIN = Origin("octo/training", "f" * 40, 7, 1, "repro-gate-report")
_MAP = HeatMap(
    steps=50,
    width=1,
    depth=3,
    rows=(
        HeatRow("main", "loss", "", 1, " " + "." * 4 + "4" * 46),
        HeatRow("main", "gradient", "blocks.3", 1, " " + "." * 3 + "1" * 47),
    ),
)
_OWN_HTML = re.compile(
    r"(?:<details><summary>[A-Za-z, ]+</summary>|</details>|</?sub>|</?code>|<br>)\n*"
)


def _tokens(text: str) -> list[Token]:
    """Every token of a text, inline ones beside their blocks, parsed as GitHub would: HTML on,
    tables too."""
    blocks = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def _unfolded(text: str) -> str:
    """What is seen without a click."""
    return re.sub(r"^<details>.*?^</details>$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_a_comment_leaves_to_the_page_what_nobody_acts_on_and_shows_the_log_of_a_crash() -> None:
    text, whole = markdown.comment(reports.FAIL), markdown.summary(reports.FAIL)
    for words in ("- `head.bias`:", "| `default-1` |", "| `torch` | `2.13.0` |", "| passed | ["):
        assert words not in text and words in whole, words
    assert "<details>" not in whole and whole.count("<details open>") > text.count("<details>") >= 2
    assert "Shortened" not in whole
    assert "Shortened" in markdown.summary(reports.FAIL, limit=1_500)
    crashed = replace(reports.INCONCLUSIVE, runs=reports.INCONCLUSIVE.runs * 2)
    text = markdown.comment(crashed)
    assert text.count("ValueError: boom") == _unfolded(text).count("ValueError: boom") == 1
    assert markdown.summary(crashed).count("ValueError: boom") == 2


@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), reports.hostile(), reports.enormous(tensors=50)],
    ids=[*reports.ALL, "hostile", "enormous"],
)
def test_every_fold_is_closed_every_table_is_a_table_and_the_rest_is_short(report: Report) -> None:
    text = markdown.comment(report)
    html = "".join(token.content for token in _tokens(text) if token.type.startswith("html_"))
    for tag in ("details", "summary"):
        assert html.count(f"<{tag}>") == html.count(f"</{tag}>")
    shown = "".join(token.content for token in _tokens(text) if token.type == "text")
    assert "| ---" not in shown and "**" not in shown
    assert "\n\n\n\n" not in text and len(_unfolded(text)) < 50_000
    _rows(text)
    if report in reports.ALL.values():
        view = View(run_url="https://github.com/octo/training/actions/runs/7")
        text = markdown.comment(replace(report, origin=_ORIGIN), view)
        assert len(text.encode()) <= 8_000 and "Shortened" not in text


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60).filter(lambda name: name not in OWN_IDS))
def test_no_hostile_name_becomes_an_element(name: str) -> None:
    for hostile in (name, name + reports.HOSTILE, reports.HOSTILE + name):
        for token in _tokens(markdown.comment(reports.hostile(hostile))):
            own = str(token.attrs.get("href", "")).startswith(f"{DOCS_URL}/causes/")
            assert own or token.type not in _LIVE, token
            if token.type in ("html_block", "html_inline"):
                assert _OWN_HTML.fullmatch(token.content), token.content
    tokens = _tokens(markdown.line(reports.hostile(name + reports.HOSTILE)))
    assert not {token.type for token in tokens} & {"link_open", "image", "s_open", "em_open"}


_LIVE = re.findall(r"\w+", "link_open image s_open blockquote_open em_open hr code_block")


def test_hostile_text_never_reaches_what_github_makes_live() -> None:
    tokens = _tokens(markdown.comment(reports.hostile()))
    plain = "".join(token.content for token in tokens if token.type == "text")
    for live in ("@octocat", "#1", "GH-2", "https://", "www.", ":tada:", "deadbeef", "$x$"):
        assert live not in plain


def test_the_limit_always_holds_the_verdict_goes_last_and_what_is_weakened_is_said() -> None:
    for limit in (65_536, 60_000, 20_000, 5_000, 1_000, 200):
        for report in (reports.hostile(), *reports.ALL.values()):
            text = markdown.comment(report, View(limit=limit))
            assert len(text) <= limit
            assert report.verdict in text
    for limit in (65_536, 20_000, 5_000, 1_500):
        for report in (
            reports.WEAKENED,
            reports.hostile(),
            reports.enormous(tensors=50, name=10_000),
        ):
            text = markdown.comment(report, View(limit=limit))
            assert "⚠️" in text and "Weakened checks" in _unfolded(text) and len(text) <= limit
        shortest = markdown.comment(reports.WEAKENED, View(limit=200)).splitlines()
        assert shortest[2] == "⚠️ **Weakened checks:** 3 weakened checks."
    for limit in (1_000_000, 65_536, 5_000, 300):
        for report in (
            reports.hostile("ü" * 3_000),
            reports.enormous(tensors=50, name=10_000),
            reports.WEAKENED,
        ):
            text = markdown.summary(report, limit=limit)
            assert len(text.encode()) <= limit and report.verdict in text


def _folded(text: str, title: str) -> str:
    """What lies under one summary."""
    return text.split(f"<summary>{title}</summary>")[1].split("</details>")[0]


def test_large_reports_fit_and_a_command_is_shown_whole_or_not() -> None:
    text = markdown.comment(reports.enormous())
    assert len(text) <= View().limit
    assert "fail" in text.splitlines()[0] and "12.4% slower" in _unfolded(text)
    assert "10,000 weakened" in text or "and 9,995 more, all in the JSON report" in text
    assert "See it again" not in markdown.comment(replace(reports.FAIL, reproduce="x" * 5_000))


def test_what_matters_least_goes_first_and_where_they_differ_is_one_sentence() -> None:
    report = _with_map(_MAP)
    whole = markdown.comment(report)
    shorter = markdown.comment(report, View(limit=len(whole) - 1))
    sentence = "first gradient blocks.3, then everything from step 4 on"
    for text in (whole, shorter):
        assert sentence in _rows(text)["Diverges at"] and text.count(sentence) == 1
        assert "See what feeds" in text and "See it again" in text
    assert "Shortened" in shorter and "Shortened" not in whole
    for renderer in (html.render, terminal.render):
        assert "from step 4 on" in " ".join(renderer(report).split())
    passed = replace(reports.PASS, noise_floor=replace(reports.NOISE, heat_map=_MAP))
    for text in (markdown.summary(reports.PASS), markdown.comment(passed)):
        assert "from step 4 on" not in text


def _with_map(found: HeatMap) -> Report:
    pair = replace(reports.DIFFERENT, heat_map=found)
    return replace(reports.FAIL, determinism=reports.compared(pair))


def test_what_did_not_pass_stays_with_its_remedy_where_room_is_short() -> None:
    message, remedy = "message " + "y" * 900, "remedy " + "z" * 900
    found = reports.check("code/c", "fail", message, ("x" * 300,) * 9, remedy)
    checks = tuple(replace(found, id=f"code/c{n}") for n in range(9))
    for few, told in ((checks[:1], 1), (checks, 4)):
        text = markdown.comment(replace(reports.FAIL, checklist=few))
        assert len(text.encode()) <= markdown.ROOM
        folded = text.partition("<summary>Checks that did not pass</summary>")[2]
        assert folded.count("message yyy") >= told and folded.count("remedy zzz") >= told
        assert ("and 5 more" in folded) is (few is checks)


def test_a_cost_that_runs_scatter_too_much_for_is_no_figure_in_any_renderer() -> None:
    scattered = {"default_scatter_pct": 31.2, "deterministic_scatter_pct": 9.0, "flags": ()}
    cost = replace(reports.COST, determinism_cost_pct=None, ci95=(-79.1, 50.8), **scattered)
    report = replace(reports.LOCKED, cost=cost)
    told = "not measurable here: the runs without flags alone scatter by 31 %"
    row = f"| **Cost** | {told}; the interval contains the budget of 30%, so this does not fail |"
    assert row in comment(report)
    assert f"; determinism cost: {told}." in markdown.line(report)
    page = html.render(report)
    assert told in page
    assert told in " ".join(terminal.render(report, View(verbose=True)).split())
    for text in (comment(report), markdown.summary(report), page, terminal.render(report)):
        assert "79.1" not in text and "faster" not in text
    more = replace(cost, deterministic_scatter_pct=40.0)
    assert "the runs with flags alone scatter by 40 %" in comment(replace(report, cost=more))


def test_a_cost_names_the_flags_that_take_it_and_what_the_other_measurement_says() -> None:
    def words(**changes: Any) -> str:
        report = replace(reports.PASS, cost=replace(reports.COST, **changes))
        return " ".join(terminal.render(report, View(verbose=True)).split())

    text = words()
    assert "of which fill_uninitialized_memory 9.8%; within" in text
    assert "whole runs: +11.0% (+4.2% to +18.3%)" in text and "90 steps timed" in text
    assert "off (`determinism.allow`) saves 9.8% and gives up known contents of memory" in text
    told = words(flags=(), why="they exclude it")
    assert told.count("from whole runs: they exclude it; alternating steps: +11.0%") == 1
    assert "(fastest steps; 90 steps timed)" in told and "of which" not in told
    row = comment(replace(reports.PASS, cost=replace(reports.COST, why="they exclude it")))
    assert "from whole runs: they exclude it; alternating" in row, "theirs is the result"
    assert "few; al" not in words(flags=(), other=None, why="too few")
    assert "left out" not in text and "without digests" not in told and "the probe" not in told
    assert "90 steps timed, 1 step of five times the median or more left out)" in words(
        slow_steps=1
    )
    probed = {"probe_pct": 34.2, "why": "they exclude it"}
    share = "; with digests the probe takes 34.2% of a step"
    assert (
        f"from whole runs: they exclude it; alternating steps: +11.0% (+4.2% to +18.3%){share}"
        in (words(**probed))
    )
    assert "from whole runs without digests: they exclude it; alt" in words(
        **probed, undigested=True
    )
    assert "the probe" not in words(probe_pct=34.2) and "the probe" not in words(
        **{**probed, "probe_pct": 10}
    )
    gpus = [reports.gpu_state(run) for run in ("deterministic-1", "default-1")]
    assert "after runs" not in words(gpus=(*gpus,))
    gpus[1] = replace(gpus[1], sm_mhz=1755.0, slowed=("hardware thermal slowdown",))
    told = words(gpus=(*gpus,))
    assert "GPU-1 was slowed down after runs without the flags alone: hardware thermal" in told
    clock = (
        "the SM clock of GPU-1 was 1980 MHz after runs with the flags, 1755 MHz after runs without"
    )
    assert clock in told
    assert clock in comment(replace(reports.PASS, cost=replace(reports.COST, gpus=(*gpus,))))


def test_one_line_says_of_a_pass_what_stayed_and_what_changed() -> None:
    text = markdown.line(reports.LOCKED, before="pass", cost_before=(1.0, 3.0))
    assert text.splitlines()[0] == (
        "✅ **Repro Gate: pass**, bitwise identical, as before; determinism cost: **12.4% slower "
        "with the flags**, 95% interval +10.1% to +14.6%, before +1.0% to +3.0%."
    )
    assert len(text.splitlines()) == 3 and "| **" not in text and "<details>" not in text
    assert "; the run before: fail;" in markdown.line(reports.LOCKED, before="fail")
    assert "within the tolerance" in markdown.line(reports.TOLERATED)
    assert "determinism cost" not in markdown.line(replace(reports.PASS, cost=None))
    assert "not finite: nan at step 7" in markdown.line(reports.FASTER)
    assert markdown.line(reports.CHANGED).count("⚠️ **changed**: inputs") == 2
    assert markdown.line(reports.WEAKENED).count("- `repro") == 3
    assert len(markdown.line(reports.WEAKENED, View(limit=300))) <= 300


_GOLDEN = Path(__file__).parent / "golden"
_NAMES = ("fail", "explained", "pass", "inconclusive", "weakened")
_RUN = "https://github.com/octo/training/actions/runs/7"
_ENTROPY = Reason(
    "random-state/os-entropy",
    "the runs diverged, and training code drew from the operating system's entropy: train.py:41: "
    "rng = default_rng()",
    "seed it from the run's seed",
)


def _comment(name: str) -> str:
    return comment(reports.ALL[name], View(run_url=_RUN))


def _rows(text: str) -> dict[str, str]:
    """The table of the first screen: label -> value, in order."""
    table = text.replace("\u00a0", " ").split("\n\n")[1].splitlines()
    if not table[0].startswith("| **"):
        return {}
    assert table[1] == "| :--- | :--- |" and len(table) <= 8
    found = [re.findall(r"^\| \*\*([A-Za-z ]+)\*\* \| (.+) \|$", line) for line in table]
    assert [len(row) for row in found] == [1, 0, *[1] * (len(table) - 2)], table
    return {label: value for row in found for label, value in row}


@pytest.mark.parametrize("name", _NAMES)
def test_the_comment_reads_as_the_golden_file(name: str) -> None:
    path = _GOLDEN / f"comment-{name}.md"
    golden(path, _comment(name))


@pytest.mark.parametrize("name", reports.ALL)
def test_the_verdict_and_the_commit_are_seen_and_what_was_measured(name: str) -> None:
    report = reports.ALL[name]
    text = comment(report)
    comma = "" if report.is_conditional else ","
    assert text.startswith(f"## {mark(report)} Repro Gate: {report.verdict}{comma} ")
    assert ("Commit `0123456789ab`" if report.subject.commit else "Commit not in git") in text
    rows = _rows(text)
    assert ("Cost" in rows) is (report.cost is not None)
    assert ("Baseline" in rows) is (report.baseline is not None)
    assert "not measured" not in text and "none" not in rows.values()


def test_the_cause_is_called_what_it_is_and_told_once() -> None:
    likely = replace(reports.WHY, confirmed=False, also=(), rate=None)
    text = comment(replace(reports.EXPLAINED, diagnosis=likely))
    assert _rows(text)["Cause"].startswith("**Likely**, not proven: ")
    assert "Confirmed" not in _unfolded(text) and "because of" not in text
    ruled_out = ("the clock", "418 operators agree")
    nothing = Diagnosis(cause="unknown", message="nothing explains it", ruled_out=ruled_out)
    report = replace(reports.EXPLAINED, diagnosis=nothing, reasons=reports.FAIL.reasons[:1])
    rows = _rows(comment(report))
    assert rows["Cause"] == "nothing explains it<br>**Ruled out**: the clock; 418 operators agree"
    assert (
        rows["Remedy"]
        == f"its page says what to try next ([unknown]({DOCS_URL}/causes/unknown.md))"
    )
    explained = replace(reports.EXPLAINED, reasons=(*reports.FAIL.reasons, _ENTROPY))

    def table(**cause: object) -> str:
        found = replace(reports.WHY, **cause) if cause else None  # type: ignore[arg-type]
        return comment(replace(explained, diagnosis=found)).split("\n\n")[1]

    at_its_line = comment(explained).split("\n\n")[1]
    assert "`train.py:17` sets" in at_its_line and "the runs diverged, and" not in at_its_line
    assert "sets `torch.backends" not in table(file="train.py", line=17)
    assert "the runs diverged, and" in table()


def test_the_heading_and_the_table_say_what_is_no_plain_divergence() -> None:
    text = comment(reports.DRIFT)
    assert text.startswith("## ❌ Repro Gate: fail, two runs agree but differ from the baseline\n")
    rows = _rows(text)
    assert list(rows)[:2] == ["Baseline", "Remedy"]
    for words in ("same inputs, different results: losses", "kernel: 6.1.0 ->"):
        assert words in rows["Baseline"] and text.count(words) == 1 + ("kernel" in words)
    head = Origin("octo/training", "f" * 40, 7, 1)
    text = comment(replace(reports.LOCKED, origin=head))
    assert "Commit `ffffffffffff`, tested as `0123456789ab`, ⚠️ with 1 uncommitted path" in text
    same = replace(head, head_sha=reports.SUBJECT.commit or "")
    assert "tested as" not in comment(replace(reports.LOCKED, origin=same))
    pair = reports.compared(reports.SAME, reports.DIFFERENT, non_finite=((7, "nan"),))
    rows = _rows(comment(replace(reports.FAIL, determinism=pair)))
    assert rows["Diverges at"].endswith("<br>seeds: 1 same, 2 differs")
    assert rows["Loss"] == "not finite: nan at step 7"


def test_a_pass_that_another_shell_would_break_says_so_in_its_title() -> None:
    text = comment(reports.CONDITIONAL)
    title = (
        "pass only with PYTHONHASHSEED=42: without it the runs differ because of `src/data.py:6`"
    )
    assert text.splitlines()[0] == f"## ⚠️ Repro Gate: {title}"
    assert list(_rows(text))[:2] == ["Cause", "Remedy"] and "Also" not in _rows(text)
    # what differs only between users is a warning below, as before
    home = replace(reports.SHELL, cause="process-identity", factor="home")
    for robust in (True, None):
        other = replace(reports.CONDITIONAL, robust=robust, diagnosis=home)
        assert comment(other).startswith("## ✅ Repro Gate: pass, bitwise identical: ")
    failing = Reason("random-state/robust", reports.SHELL.message)
    text = comment(replace(reports.CONDITIONAL, verdict="fail", reasons=(failing,)))
    assert text.startswith("## ❌ Repro Gate: fail, the runs agree only with PYTHONHASHSEED=42: ")


def test_a_failed_resume_names_what_is_not_restored_its_place_and_a_link() -> None:
    text = comment(reports.RESUMED)
    title = "resumed at step 6, it is not the same training: the state of the torch generator"
    assert text.startswith(f"## ❌ Repro Gate: fail, {title} differs\n")
    rows = _rows(text)
    below = _folded(text, "Resume")
    for words in (
        "- leg 1, steps 0 to 9: bitwise identical",
        "- leg 2, steps 6 to 15: different<br>`rng:torch` the state of the torch generator differs",
        "<br>diverges at **step 3**, gradient of `blocks.3.attn.weight`",
    ):
        assert words in below, words
    assert f" ([resume](<{DOCS_URL}/resume.md>)) " in rows["Remedy"]
    fine = replace(reports.PASS, resume=replace(reports.RESUMED.resume, identical=True, legs=()))
    assert not {"Cause", "Diverges at"} & _rows(comment(fine)).keys()
    legs = replace(fine, resume=replace(reports.RESUMED.resume, identical=True))
    assert _rows(comment(legs))["Resume"].startswith(
        "leg 1, steps 0 to 9: bitwise identical; leg 2"
    )
    elsewhere = f"see {DOCS_URL}/../../x.md, https://evil.example/docs/resume.md"
    (reason,) = reports.RESUMED.reasons
    other = replace(reports.RESUMED, reasons=(replace(reason, remedy=elsewhere),))
    assert "](" not in _rows(comment(other))["Remedy"].partition("resume/diverged")[0][:-3]


def test_of_reasons_and_weakened_checks_the_first_are_seen_and_the_rest_is_counted() -> None:
    reasons = tuple(Reason(f"made/up-{index}", f"reason number {index}") for index in range(9))
    text = comment(replace(reports.FAIL, reasons=reasons))
    head, table, below = text.split("\n\n", 2)
    assert "fail, reason number 0" in head
    assert re.findall(r"reason number (\d)", table) == ["1", "2", "3", "4"]
    assert re.findall(r"reason number (\d)", below) == ["5", "6", "7", "8"]
    assert "### ⚠️ Weakened checks" in _unfolded(comment(reports.WEAKENED))
    assert "Weakened checks" not in comment(reports.LOCKED)
    many = tuple(WeakenedCheck(f"key.{index}", "less now") for index in range(40))
    base = replace(reports.WEAKENED.base or pytest.fail("it has one"), weakened=many)
    seen = _unfolded(comment(replace(reports.WEAKENED, base=base)))
    assert seen.count("less now") == 5 and "and 35 more, all in the JSON report" in seen


def _explained(file: str, **subject: object) -> Report:
    return replace(
        reports.EXPLAINED,
        origin=Origin("octo/training", "f" * 40, 7, 1),
        subject=replace(reports.SUBJECT, **subject),  # type: ignore[arg-type]
        diagnosis=replace(reports.WHY, file=file, also=()),
    )


def test_the_causes_line_is_a_link_to_it_at_the_commit_that_was_tested_if_that_has_it() -> None:
    address = (
        f"(<https://ghe.example/octo/training/blob/{reports.SUBJECT.commit}/src/my%20train.py#L41>)"
    )
    text = comment(_explained("src/my train.py"), View(server_url="https://ghe.example"))
    assert f"[`src/my train.py:41`]{address}" in text.splitlines()[0]
    assert f"[`my train.py:41`]{address}" in _rows(text)["Cause"], "a phone is narrow"
    for file, subject in (
        ("src/train.py", {"commit": None}),
        ("src/train.py", {"uncommitted": ("src/train.py",)}),
        ("/etc/train.py", {}),
        ("../train.py", {}),
        ("a\u202eb.py", {}),
    ):
        report = _explained(file, **subject)
        for unlinked in (report, replace(_explained("src/train.py"), origin=None)):
            text = comment(unlinked)
            assert "/blob/0123" not in text and ":41" in _rows(text)["Cause"]
    for file in ("a](x)b.py", "a>b.py", "a|b.py", "`a`.py", "a#b?c.py", "<b>.py"):
        lines = comment(_explained(file)).splitlines()
        (found,) = re.findall(
            r"\]\(<([^>]*)>\)", next(line for line in lines if line.startswith("| **Cause**"))
        )
        blob = r"https://github\.com/octo/training/blob/[0-9a-f]{40}/"
        assert re.fullmatch(blob + r"[A-Za-z0-9%._-]+#L41", found)


def test_the_causes_line_is_shown_with_those_around_it_in_a_block_that_it_cannot_end() -> None:
    assert "```text" not in comment(reports.EXPLAINED)
    excerpt = ((40, "    if a:"), (41, "```torch.Generator().seed()"), (42, "</details>\n| a |"))
    text = comment(replace(reports.EXPLAINED, diagnosis=replace(reports.WHY, excerpt=excerpt)))
    lines = ["````text", "  40 |     if a:", "> 41 | ```torch.Generator().seed()"]
    assert "\n".join(["\n", *lines, "  42 | </details> | a |", "````", "\n"]) in text


def test_the_page_is_named_only_where_there_is_a_run_and_our_link_cannot_be_ended() -> None:
    named = replace(reports.PASS, origin=Origin("octo/training", "f" * 40, 7, 1, "out-a100"))
    link = f"[artifact](<{_RUN}#artifacts>) `out-a100`"
    assert f"The whole report: {link}, `report.html`" in comment(named, View(run_url=_RUN))
    page = f"{_RUN}/artifacts/5"
    opened = comment(named, View(run_url=_RUN, page_url=page))
    assert f"The whole report: [open the page](<{page}>)" in opened and "#artifacts" not in opened
    # nobody is led to a page that a fork may have put there
    posted = comment(named, View(run_url=_RUN, by_training=True))
    assert f"{link}; its `report.html` is the training's file: `repro-gate show" in posted
    assert " · written by the training's job · " in posted.splitlines()[-1]
    assert "report.html" not in comment(named) and "#artifacts" not in comment(named)
    text = comment(reports.PASS, View(run_url="https://h/a b>(c)<d>\n[x](y)"))
    assert "[workflow run](<https://h/a%20b%3E%28c%29%3Cd%3E%0A%5Bx%5D%28y%29>)" in text
    assert "](<" not in comment(reports.PASS)


@pytest.mark.parametrize(
    "code",
    [
        "classes_dict = {c: np.identity(len(classes))[i, :] for i, c in…",
        'x = a[i](*b) | c + "@octocat"',
        "s = '`a` [b](c) <i>'",
    ],
)
def test_text_of_code_is_one_word_of_a_sentence_in_every_renderer(code: str) -> None:
    """However it looks to Markdown: a renderer takes it whole, or not at all."""
    cause = Diagnosis(cause="unknown", factor="hash-seed", call=code, file="a/b.py", line=8)
    line = use("line", 8, call=code, file="a/b.py")
    message = at_line(cause, line).message
    check = reports.check("random-state/robust", "warn", message)
    report = replace(reports.PASS, checklist=(check,))
    shown = code.replace("`", "'")
    spans = [token.content for token in _tokens(comment(report)) if token.type == "code_inline"]
    assert {*shown.split("|")} <= {*spans}
    assert f"<code>{shown}</code> in a/b.py:8 depends" in unescape(html.render(report))
    assert f"`{shown}` in a/b.py:8" in " ".join(terminal.render(report, View(width=500)).split())
    failed = replace(report, verdict="fail", reasons=())
    (result,) = json.loads(exports.sarif(failed))["runs"][0]["results"]
    assert shown.replace("](", "] (") in result["message"]["text"]
