"""Claims about `report.markdown` and `report.chart`: nothing hostile is live, what is folded is whole, and it always fits."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.pages import reasons
from repro_gate.compare.model import Comparison
from repro_gate.report import chart, markdown
from repro_gate.report.markdown_details import AMPLE, FORMS
from repro_gate.report.model import PLAIN, Report, SeedResult, View
from tests.support import reports

OWN_IDS = {*reasons(), *(item.id for item in ALL)}  # the report links these to their pages, and Hypothesis finds them in the sources
_OWN_TAGS = re.compile(r"</?(?:details|summary|sub|code)>|<br>")
_OWN_HTML = re.compile(r"(?:<details><summary>[A-Za-z ]+</summary>|</details>|</?sub>|</?code>|<br>)\n*")
_NUMBER = r"-?\d+(?:\.\d+)?"
_MERMAID = re.compile(  # the grammar of mermaid 11's xychart, as far as we use it: plain decimals, quoted titles, one series
    rf"""xychart-beta\n
    \ +title\ "[^"\n]+"\n
    \ +x-axis\ "[^"\n]+"\ (?P<first>-?\d+)\ -->\ (?P<last>-?\d+)\n
    \ +y-axis\ "[^"\n]+"\ (?P<low>{_NUMBER})\ -->\ (?P<high>{_NUMBER})\n
    \ +(?P<mark>line)\ \[(?P<values>{_NUMBER}(?:,\ {_NUMBER})*)\]""",
    re.VERBOSE,
)


def _tokens(text: str) -> list[Token]:
    """Every token of a text, inline ones beside their blocks, parsed as GitHub would: HTML on, tables too."""
    blocks = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def _drawn(text: str) -> tuple[int, int, list[float], re.Match[str]]:
    """(first step, last step, values, match) of a diagram that follows the grammar."""
    found = _MERMAID.fullmatch(text)
    assert found is not None, text
    values = [float(value) for value in found["values"].split(", ")]
    assert float(found["low"]) < float(found["high"])
    assert all(float(found["low"]) - 0.001 <= value <= float(found["high"]) + 0.001 for value in values)
    return int(found["first"]), int(found["last"]), values, found


def _unfolded(text: str) -> str:
    """What is seen without a click."""
    return re.sub(r"^<details>.*?^</details>$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_a_fail_tells_what_diverges_why_and_how_to_see_it_again() -> None:
    text = markdown.comment(reports.FAIL)
    for words in (
        "**step 3**, gradient of `blocks.3.attn.weight`",
        "**3 ULP**",
        "**14 of 202** tensors differ",
        "`determinism/diverged`",
        "**Remedy:**",
        "```sh\nrepro-gate run repro.yml --seed 42 --steps 50\n```",
        "```mermaid\nxychart-beta",
        "env **1**/2",
        "| `head.bias` |",
        "| `default-1` |",
        "| `torch` | `2.13.0` |",
        "| `CUBLAS_WORKSPACE_CONFIG` | `:4096:8` |",
    ):
        assert words in text, words


def test_a_pass_draws_no_chart_and_accuses_nobody() -> None:
    text = markdown.comment(reports.PASS)
    assert "mermaid" not in text and "What differs and how far" not in text and "❌" not in text


def test_nothing_measured_says_so_and_shows_no_empty_section() -> None:
    text = markdown.comment(reports.NOTHING)
    assert text.count("not measured") == 2
    for words in (
        "**Why**",
        "Reasons and what to do",
        "Checklist",
        "Against the baseline",
        "**Base**",
        "Config hash",
        "Weakened checks",
        "Flags as read back",
        "Runs and times",
        "None",
        "nan",
    ):
        assert words not in text


def test_the_log_of_a_crash_is_there_and_folded() -> None:
    text = markdown.comment(reports.INCONCLUSIVE)
    assert text.index("<details><summary>End of a log") < text.index("ValueError: boom") < text.rindex("</details>")


@pytest.mark.parametrize("report", [*reports.ALL.values(), reports.hostile()], ids=[*reports.ALL, "hostile"])
def test_every_fold_is_closed_and_every_table_is_a_table(report: Report) -> None:
    text = markdown.comment(report)
    tags = [tag for token in _tokens(text) if token.type in ("html_block", "html_inline") for tag in _OWN_TAGS.findall(token.content)]
    assert tags.count("<details>") == tags.count("</details>") == tags.count("<summary>") == tags.count("</summary>")
    shown = "".join(token.content for token in _tokens(text) if token.type == "text")
    assert "| ---" not in shown and "**" not in shown
    assert "\n\n\n\n" not in text


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60).filter(lambda name: name not in OWN_IDS))
def test_no_hostile_name_becomes_an_element(name: str) -> None:
    for hostile in (name, name + reports.HOSTILE, reports.HOSTILE + name):
        for token in _tokens(markdown.comment(reports.hostile(hostile))):
            own = str(token.attrs.get("href", "")).startswith(f"{DOCS_URL}/causes/")
            assert own or token.type not in ("link_open", "image", "s_open", "blockquote_open", "em_open", "hr", "code_block"), token
            if token.type in ("html_block", "html_inline"):
                assert _OWN_HTML.fullmatch(token.content), token.content


def test_hostile_text_never_reaches_what_github_makes_live() -> None:
    plain = "".join(token.content for token in _tokens(markdown.comment(reports.hostile())) if token.type == "text")
    for live in ("@octocat", "#1", "GH-2", "https://", "www.", ":tada:", "deadbeef", "$x$"):
        assert live not in plain


def test_a_forgotten_filter_in_a_template_is_still_safe() -> None:
    environment = markdown._environment()
    assert environment.from_string("{{ x }}").render(x="<b>@user") == "`<b>@user`"
    assert environment.from_string("{{ x.y }}").render(x={"y": "a|b"}) == "`a`<code>&#124;</code>`b`"


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


def test_where_no_form_fits_the_number_of_weakened_checks_is_still_said() -> None:
    assert markdown.comment(reports.WEAKENED, View(limit=160)).splitlines()[2] == "⚠️ **Weakened checks:** 3 weakened checks."


def _folded(text: str, title: str) -> str:
    """What lies under one summary."""
    return text.split(f"<summary>{title}</summary>")[1].split("</details>")[0]


def test_drift_and_changed_inputs_are_told_in_full_behind_the_lock() -> None:
    drift = _folded(markdown.comment(reports.DRIFT), "Against the baseline")
    text = markdown.comment(reports.CHANGED)
    changed = _folded(text, "Against the baseline") + _folded(text, "Against another ref")
    for words in ("- outside the inputs: `numpy: 2.1.0 -> 2.2.0`", "- **Remedy:** bring", "- losses up to **3.1e-05** apart"):
        assert words in drift, words
    for words in ("- recipe `data/extra.bin`: new, `sha256:6f6f6f6f6f6f`", "- platform `cpu/threads`: `2` -> `4`", "- first at **step 3**"):
        assert words in changed, words


def test_the_config_hash_and_its_inputs_are_folded_and_whole() -> None:
    text = markdown.comment(reports.LOCKED)
    folded = text[text.index("<details><summary>Config hash") :]
    for words in (
        reports.ADDRESS.config_hash,
        "| recipe | `seed` | `42` |",
        '| `{"loss": 1.0, "weights": 1e-05}` |',
        "- covers 10",
    ):
        assert words in folded, words
    assert reports.ADDRESS.config_hash not in _unfolded(text)
    assert "- ⚠️ only 9 of 10 inputs affect it" in markdown.comment(reports.UNPROVEN)


def test_a_value_that_python_cannot_write_is_no_stack_trace() -> None:
    bottomless: list[Any] = []
    bottomless.append(bottomless)
    inputs = {"huge": 10**5_000, "bottomless": bottomless}
    text = markdown.comment(replace(reports.LOCKED, config_hash=replace(reports.ADDRESS, recipe_inputs=inputs)))
    assert text.count("too large to show") == 2


def test_ten_thousand_tensors_with_huge_names_and_five_hundred_reasons_fit() -> None:
    text = markdown.comment(reports.enormous())
    assert len(text) <= markdown.LIMIT
    assert "fail" in text.splitlines()[0] and "12.4% slower" in _unfolded(text)
    assert "`made/up-0`" in text and "more, all in the JSON report" in text


def test_shorter_forms_drop_the_least_useful_part_first() -> None:
    whole = markdown.comment(reports.FAIL)
    sizes = [len(markdown._rendered(reports.FAIL, PLAIN, form, shortened=form != FORMS[0])) for form in FORMS]
    assert sizes[1:] == sorted(sizes[1:], reverse=True) and sizes[-1] < sizes[0] / 2  # `Shortened` itself takes a few characters
    shorter = markdown.comment(reports.FAIL, View(limit=sizes[3]))
    for words in ("determinism/diverged", "blocks.3.attn.weight", "See it again"):
        assert words in shorter
    assert "Shortened" in shorter and "Shortened" not in whole


@pytest.mark.parametrize("limit", [1_000_000, 65_536, 5_000, 300, 6, 0])
def test_a_summary_is_measured_in_bytes(limit: int) -> None:
    for report in (reports.hostile("ü" * 3_000), reports.enormous(tensors=50, name=10_000), reports.WEAKENED):
        text = markdown.summary(report, View(limit=limit))
        assert len(text.encode()) <= limit and report.verdict[:limit] in text


def test_a_summary_shows_more_rows_than_a_comment_and_shows_them_unfolded() -> None:
    many = replace(reports.FAIL, comparisons=(SeedResult(42, replace(reports.DIFFERENT, weights=reports.WEIGHTS * 30)),))
    comment, summary = markdown.comment(many), markdown.summary(many)
    assert (comment.count("`head.bias`"), summary.count("`head.bias`")) == (12, 30)
    assert "<details>" not in summary and summary.count("<details open>") == comment.count("<details>") > 3
    assert "Shortened" not in summary and "Shortened" in markdown.summary(many, View(limit=len(summary) - 1))
    assert AMPLE not in FORMS


def test_a_command_is_shown_whole_or_not_at_all() -> None:
    assert "See it again" not in markdown.comment(replace(reports.FAIL, reproduce="x" * 5_000))


def test_the_loss_chart_is_logarithmic_where_gaps_span_decades() -> None:
    text = chart.chart(reports.DIFFERENT)
    assert text is not None and "log10" in text
    first, last, values, found = _drawn(text)
    assert (first, last, len(values), found["mark"]) == (0, 49, 50, "line")
    assert values[-1] == pytest.approx(math.log10(1e-9 * 1.3**49), abs=1e-3)
    assert values[0] == float(found["low"])


def test_a_narrow_range_is_drawn_as_it_is_with_its_unit_in_the_title() -> None:
    pair = replace(reports.DIFFERENT, losses=((0, 1.0, 1.0), (1, 1.0, 1.0 + 2e-6), (2, 1.0, 1.0 + 4e-6)))
    text = chart.chart(pair)
    assert text is not None and "10 to the power of -6" in text and "log10" not in text
    assert _drawn(text)[2] == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "pair",
    [
        reports.SAME,
        replace(reports.SAME, losses=()),
        replace(reports.DIFFERENT, losses=()),
        replace(reports.DIFFERENT, losses=((0, 1.0, 2.0),)),
    ],
)
def test_where_there_is_nothing_to_show_there_is_no_chart(pair: Comparison) -> None:
    assert chart.chart(pair) is None


def test_thinning_keeps_the_peak() -> None:
    losses = tuple((step, 1.0, 1.5 if step == 777 else 1.1) for step in range(100_000))
    text = chart.chart(replace(reports.DIFFERENT, losses=losses))
    assert text is not None
    first, last, values, _ = _drawn(text)
    assert len(values) <= chart.POINTS and max(values) == 5.0 and values[0] == max(values)
    assert (last - first) % (len(values) - 1) == 0 and last < 100_000


_LOSS = st.one_of(st.floats(), st.sampled_from([0.0, 5e-324, 1e-300, 1e308, math.nan, math.inf]))


_STEP = st.integers(-1, 10**12)


@given(st.lists(st.tuples(_STEP, _LOSS, _LOSS), max_size=80))
def test_every_chart_follows_mermaids_grammar(losses: list[tuple[int, float, float]]) -> None:
    text = chart.chart(replace(reports.DIFFERENT, losses=tuple(losses)))
    if text is not None:
        first, last, values, _ = _drawn(text)
        assert 2 <= len(values) <= chart.POINTS and (last - first) % (len(values) - 1) == 0
