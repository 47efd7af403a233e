"""Claims about `report.markdown`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from repro_gate._version import DOCS_URL
from repro_gate.baseline.config_hash import Inputs
from repro_gate.checks import ALL
from repro_gate.checks.pages import reasons
from repro_gate.compare.model import HeatMap, HeatRow
from repro_gate.report import markdown
from repro_gate.report.model import Origin, Report, View
from tests.support import reports

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


def test_a_comment_leaves_to_the_page_what_nobody_acts_on_and_the_summary_has_it_unfolded() -> None:
    text, whole = markdown.comment(reports.FAIL), markdown.summary(reports.FAIL)
    for words in ("- `head.bias`:", "| `default-1` |", "| `torch` | `2.13.0` |", "- passed: ["):
        assert words not in text and words in whole, words
    assert "<details>" not in whole and whole.count("<details open>") > text.count("<details>") >= 3
    assert "Shortened" not in whole
    assert "Shortened" in markdown.summary(reports.FAIL, View(limit=1_500))


def test_the_log_of_a_crash_is_seen_without_a_click_once() -> None:
    crashed = replace(reports.INCONCLUSIVE, runs=reports.INCONCLUSIVE.runs * 2)
    text = markdown.comment(crashed)
    assert text.count("ValueError: boom") == _unfolded(text).count("ValueError: boom") == 1
    assert markdown.summary(crashed).count("ValueError: boom") == 2


@pytest.mark.parametrize(
    "report", [*reports.ALL.values(), reports.hostile()], ids=[*reports.ALL, "hostile"]
)
def test_every_fold_is_closed_and_every_table_is_a_table(report: Report) -> None:
    text = markdown.comment(report)
    html = "".join(token.content for token in _tokens(text) if token.type.startswith("html_"))
    for tag in ("details", "summary"):
        assert html.count(f"<{tag}>") == html.count(f"</{tag}>")
    shown = "".join(token.content for token in _tokens(text) if token.type == "text")
    assert "| ---" not in shown and "**" not in shown
    assert "\n\n\n\n" not in text


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


@pytest.mark.parametrize("limit", [65_536, 60_000, 20_000, 5_000, 1_000, 100, 30, 4, 0])
def test_the_limit_always_holds_and_the_verdict_goes_last(limit: int) -> None:
    for report in (reports.hostile(), *reports.ALL.values()):
        text = markdown.comment(report, View(limit=limit))
        assert len(text) <= limit
        assert report.verdict[:limit] in text


@pytest.mark.parametrize("limit", [65_536, 20_000, 5_000, 1_500])
def test_no_form_is_too_short_to_say_that_less_is_asked(limit: int) -> None:
    for report in (reports.WEAKENED, reports.hostile(), reports.enormous(tensors=50, name=10_000)):
        text = markdown.comment(report, View(limit=limit))
        assert "⚠️" in text and "Weakened checks" in _unfolded(text) and len(text) <= limit
    shortest = markdown.comment(reports.WEAKENED, View(limit=160)).splitlines()
    assert shortest[2] == "⚠️ **Weakened checks:** 3 weakened checks."


def _folded(text: str, title: str) -> str:
    """What lies under one summary."""
    return text.split(f"<summary>{title}</summary>")[1].split("</details>")[0]


def test_a_value_that_python_cannot_write_is_no_stack_trace() -> None:
    bottomless: list[Any] = []
    bottomless.append(bottomless)
    inputs: Inputs = {"huge": 10**5_000, "bottomless": bottomless}
    hashed = reports.address(recipe=inputs)
    text = markdown.summary(replace(reports.LOCKED, config_hash=hashed))
    assert text.count("too large to show") == 2


def test_ten_thousand_tensors_with_huge_names_and_five_hundred_reasons_fit() -> None:
    text = markdown.comment(reports.enormous())
    assert len(text) <= markdown.LIMIT
    assert "fail" in text.splitlines()[0] and "12.4% slower" in _unfolded(text)
    assert "10,000 weakened" in text or "and 9,995 more, all in the JSON report" in text


def test_what_matters_least_goes_first_and_the_reader_is_told() -> None:
    report = _with_map(_MAP)
    whole = markdown.comment(report)
    shorter = markdown.comment(report, View(limit=len(whole) - 1))
    for words in ("determinism/diverged", "blocks.3.attn.weight", "See it again"):
        assert words in shorter
    assert "Shortened" in shorter and "Shortened" not in whole
    assert "by module and step" in whole and "by module and step" not in shorter


def _with_map(found: HeatMap) -> Report:
    pair = replace(reports.DIFFERENT, heat_map=found)
    return replace(reports.FAIL, determinism=reports.compared(pair))


@pytest.mark.parametrize("name", reports.ALL)
def test_a_comment_takes_at_most_eight_thousand_bytes(name: str) -> None:
    view = View(run_url="https://github.com/octo/training/actions/runs/7")
    text = markdown.comment(replace(reports.ALL[name], origin=_ORIGIN), view)
    assert len(text.encode()) <= 8_000 and "Shortened" not in text


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


def test_a_summary_shows_the_map_of_what_differs_and_of_a_pass_the_one_without_flags() -> None:
    assert "→ gradient blocks.3" in _folded(
        markdown.summary(_with_map(_MAP)), "Where they differ, by module and step"
    )
    passed = replace(reports.PASS, noise_floor=replace(reports.NOISE, heat_map=_MAP))
    assert "blocks.3" in _folded(markdown.summary(passed), "Without the flags, by module and step")
    for text in (markdown.summary(reports.PASS), markdown.comment(passed)):
        assert "by module and step" not in text


def test_one_line_says_of_a_pass_what_stayed_and_what_changed() -> None:
    text = markdown.line(reports.LOCKED, before="pass", cost_before=(1.0, 3.0))
    assert text.splitlines()[0] == (
        "✅ **Repro Gate: pass**, bitwise identical, as before; determinism costs **+12.4%**, 95% "
        "interval +10.1% to +14.6%, before +1.0% to +3.0%."
    )
    assert len(text.splitlines()) == 3 and "| **" not in text and "<details>" not in text
    assert "; the run before: fail;" in markdown.line(reports.LOCKED, before="fail")
    assert "within the tolerance" in markdown.line(reports.TOLERATED)
    assert "costs" not in markdown.line(replace(reports.PASS, cost=None))
    assert "not finite: nan at step 7" in markdown.line(reports.FASTER)
    assert markdown.line(reports.CHANGED).count("⚠️ **changed**: inputs") == 2
    assert markdown.line(reports.WEAKENED).count("- `repro") == 3
    assert len(markdown.line(reports.WEAKENED, View(limit=300))) <= 300


@pytest.mark.parametrize("limit", [1_000_000, 65_536, 5_000, 300, 6, 0])
def test_a_summary_is_measured_in_bytes(limit: int) -> None:
    for report in (
        reports.hostile("ü" * 3_000),
        reports.enormous(tensors=50, name=10_000),
        reports.WEAKENED,
    ):
        text = markdown.summary(report, View(limit=limit))
        assert len(text.encode()) <= limit and report.verdict[:limit] in text


def test_a_command_is_shown_whole_or_not_at_all() -> None:
    assert "See it again" not in markdown.comment(replace(reports.FAIL, reproduce="x" * 5_000))
