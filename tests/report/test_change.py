"""What a report says of a change: one clause for each size and each bad case, one sentence for each
metric, the losses as text; and nothing of it is live."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from repro_gate.baseline.model import BaselineFinding
from repro_gate.commands import output
from repro_gate.compare.change import SIZES, Change, ChangedOperator
from repro_gate.compare.effect import Effect, effect_of
from repro_gate.compare.model import Apart
from repro_gate.report import change as drawn
from repro_gate.report import document, html, markdown, terminal
from repro_gate.report.model import Report
from repro_gate.report.wording import effect, headline, plain_text, roundings, size_of
from tests.support import reports

GRADIENT = Apart(step=0, kind="gradient", name="attn.qkv", roundings=300.0)
NEAR = Apart(step=3, kind="parameter", name="fc.weight", roundings=2.13)
BITS = Apart(step=2, kind="loss", name="loss")


def change(size: str = "different", **more: Any) -> Change:
    return Change(size=size, **{"beside": "origin/main", "steps": 80, **more})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (change("none"), "bitwise identical results"),
        (change("rounding", worst=NEAR), "rounding only: 2.1 roundings at most in 80 steps"),
        (
            change("rounding", worst=replace(NEAR, roundings=1.0), steps=1),
            "rounding only: 1.0 rounding at most in 1 step",
        ),
        (change("rounding"), "rounding only"),
        (
            change("within-seed-noise", first=GRADIENT, worst=GRADIENT),
            (
                "another training, within seed noise, first at step 0 (gradient of attn.qkv) by 300 "
                "roundings"
            ),
        ),
        (
            change("effect", first=replace(NEAR, roundings=1234.6)),
            (
                "another training, with an effect, first at step 3 (parameter fc.weight) by 1,235 "
                "roundings"
            ),
        ),
        (change(first=BITS), "other results, first at step 2 (loss)"),
        (change(), "other results"),
    ],
)
def test_each_size_is_one_clause(found: Change, words: str) -> None:
    assert size_of(found) == words


def test_every_size_has_words_of_its_own() -> None:
    assert len({size_of(change(size)) for size in SIZES}) == len(SIZES)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            change(first=replace(GRADIENT, step=-1, kind="parameter", roundings=None)),
            "other results, first before the first step (parameter attn.qkv)",
        ),
        (
            change(first=replace(GRADIENT, roundings=math.inf)),
            "other results, first at step 0 (gradient of attn.qkv) by inf roundings",
        ),
        (change(detail="no tensor is in both"), "other results; no tensor is in both"),
        (
            change(first=GRADIENT, detail="it takes 2 steps, the reference 3", likely="because"),
            (
                "other results, first at step 0 (gradient of attn.qkv) by 300 roundings; it takes 2 "
                "steps, the reference 3; because"
            ),
        ),
        (
            change("rounding", worst=NEAR, unmatched=("a", "b")),
            "rounding only: 2.1 roundings at most in 80 steps; on one side only: a, b",
        ),
        (
            change(unmatched=("a", "b", "c", "d", "e")),
            "other results; on one side only: a, b, c and 2 more",
        ),
        (
            change("none", distributions=("torch 2.12.0 -> 2.13.0",)),
            "torch 2.12.0 -> 2.13.0: bitwise identical results",
        ),
        (
            change(
                "rounding",
                worst=NEAR,
                distributions=("torch 2.12.0 -> 2.13.0", "x 1 -> absent", "y 1 -> 2", "z 1 -> 2"),
                operator=ChangedOperator("aten.addmm.default", "model.py:41", 1.3),
            ),
            (
                "torch 2.12.0 -> 2.13.0, y 1 -> 2, z 1 -> 2: rounding only: 2.1 "
                "roundings at most in 80 steps; aten.addmm.default in model.py:41 first, 1.3 roundings"
            ),
        ),
        (
            change(operator=ChangedOperator("aten.mm.default", "")),
            "other results; aten.mm.default in no line of the checkout first",
        ),
    ],
)
def test_each_bad_case_is_one_clause(found: Change, words: str) -> None:
    assert size_of(found) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0.0, "0.0 roundings"),
        (1.0, "1.0 rounding"),
        (0.96, "1.0 rounding"),
        (99.94, "99.9 roundings"),
        (100.0, "100 roundings"),
        (12_345.6, "12,346 roundings"),
        (1e9, "1.0e+09 roundings"),
        (math.inf, "inf roundings"),
        (math.nan, "nan roundings"),
    ],
)
def test_roundings_are_counted(count: float, words: str) -> None:
    assert roundings(count) == words


def measured(**more: Any) -> Effect:
    given = {"difference": 0.4, "ci95": (-0.2, 1.0), "spread": 0.9, "result": "none-shown"}
    return Effect(metric="val_acc", seeds=5, **{**given, **more})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            measured(needed=14, smallest=0.5, correlation=0.8),
            (
                "val_acc +0.4 (95 %: -0.2 to +1, 5 paired seeds): no effect shown, another seed alone "
                "moves it by 0.9, 14 seeds would show an effect of 0.5"
            ),
        ),
        (
            measured(needed=33),
            (
                "val_acc +0.4 (95 %: -0.2 to +1, 5 paired seeds): no effect shown, another seed alone "
                "moves it by 0.9, 33 seeds would show an effect of 0.4"
            ),
        ),
        (
            measured(needed=None),
            (
                "val_acc +0.4 (95 %: -0.2 to +1, 5 paired seeds): no effect shown, another seed alone "
                "moves it by 0.9"
            ),
        ),
        (
            measured(difference=7.42, ci95=(6.2, 8.6), result="better", needed=3, beyond=True),
            (
                "val_acc +7.42 (95 %: +6.2 to +8.6, 5 paired seeds): better, another seed alone moves "
                "it by 0.9"
            ),
        ),
        (
            measured(difference=-6.4, ci95=(-7.7, -5.1), result="worse", spread=None),
            "val_acc -6.4 (95 %: -7.7 to -5.1, 5 paired seeds): worse",
        ),
        (
            measured(difference=-1234567.0, ci95=(-2e50, 1e-9), spread=1e300),
            (
                "val_acc -1.23e+06 (95 %: -2e+50 to +1e-09, 5 paired seeds): no effect shown, another "
                "seed alone moves it by 1e+300"
            ),
        ),
        (
            measured(difference=0.0, ci95=(0.0, 0.0), spread=0.0, why="the seed does not move it"),
            (
                "val_acc +0 (95 %: +0 to +0, 5 paired seeds): no effect shown, another seed alone moves "
                "it by 0, the seed does not move it"
            ),
        ),
        (Effect(metric="f1", seeds=0, why="no run has it"), "f1: no run has it"),
    ],
)
def test_an_effect_is_one_sentence(found: Effect, words: str) -> None:
    assert effect(found) == words


def test_pairing_that_does_not_help_is_told() -> None:
    told = "pairing by seed does not help here"
    for correlation, is_told in ((0.29, True), (-0.29, True), (0.31, False), (None, False)):
        assert (told in effect(measured(correlation=correlation))) is is_told


def test_pairing_that_harms_is_told() -> None:
    assert "pairing by seed does not help" in effect(measured(correlation=-0.9))


@pytest.mark.parametrize(
    ("base", "now", "words"),
    [
        ({}, {}, "acc: the two sides have no seed in common"),
        ({1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0}, "acc: 3 seeds of both sides are the fewest"),
        (
            {1: 1.0, 2: 2.0, 3: 3.0},
            {1: 1.0, 2: math.nan, 3: 3.0},
            "acc: no figure: the change has nan with seed 2",
        ),
        (
            {1: 1.0, 2: 1e308, 3: 3.0},
            {1: 1.0, 2: 2.0, 3: 3.0},
            "acc: no figure: the base has 1e+308 with seed 2",
        ),
    ],
)
def test_what_has_no_figure_says_why(
    base: dict[int, float], now: dict[int, float], words: str
) -> None:
    assert effect(effect_of("acc", base, now)).startswith(words)


def seeds(*rows: tuple[int, float, float]) -> tuple[tuple[int, Any], ...]:
    return ((42, rows), (43, rows))


EFFECT = change(
    "effect",
    first=GRADIENT,
    effects=(measured(difference=0.6, ci95=(0.2, 1.0), result="better"), Effect(metric="f1", seeds=0, why="lost")),
    losses=seeds((0, 2.0, 2.0), (1, 1.5, 1.25), (2, 1.0, 0.5)),
)  # fmt: skip


def report(found: Change, verdict: str = "pass") -> Report:
    return replace(reports.PASS, change=found, verdict=verdict)


def test_a_row_has_the_size_and_each_effect() -> None:
    for text in (terminal.render(report(EFFECT)), markdown.comment(report(EFFECT))):
        flat = " ".join(re.sub(r"<br>|[`|]", " ", text).split())
        assert "another training, with an effect, first at step 0 " in flat
        assert "val_acc" in flat and "+0.6 (95 %: +0.2 to +1, 5 paired seeds): better" in flat
        assert "f1: lost" in flat
        assert flat.index("another training") < flat.index("val_acc")
    assert "\n  change " in terminal.render(report(EFFECT))
    assert "\n  change " not in terminal.render(reports.PASS)


def test_of_two_environments_the_change_is_said_first() -> None:
    found = replace(EFFECT, distributions=("torch 2.12.0 -> 2.13.0",))
    for text in (terminal.render(report(found)), markdown.comment(report(found))):
        assert text.count("torch 2.12.0") == 1
        assert text.index("torch 2.12.0") < text.lower().index("compared")


def test_a_new_platform_that_is_rounding_says_so_in_the_title() -> None:
    new = BaselineFinding(status="new-platform", message="x")
    for size, told in (("none", False), ("rounding", True), ("different", False)):
        found = replace(report(change(size, worst=NEAR)), baseline=new)
        assert ("rounding only" in plain_text(headline(found))) is told
    found = report(change("rounding", worst=NEAR))
    assert "rounding" not in plain_text(headline(found))


def test_the_losses_are_drawn_as_text() -> None:
    head, before, after, *intervals = drawn.picture(EFFECT).split("\n")
    assert head.startswith("mean loss of 2 seeds, 0.5 to 2")
    assert before.split() == ["before", "█▆▃"] and after.split() == ["after", "█▅▁"]
    (interval,) = intervals
    assert interval.startswith("val_acc ") and interval.index("0") < interval.index("●")
    assert interval.endswith("─")
    assert drawn.picture(None) == drawn.picture(change("none")) == ""


@pytest.mark.parametrize(
    "losses",
    [
        seeds((0, 1.0, 1.0)),
        seeds((0, 0.0, 0.0)),
        seeds((0, math.nan, 1.0)),
        seeds((0, 1.0, math.nan)),
        seeds((0, 1.0, -math.inf), (1, -math.inf, math.nan), (2, 1.0, 2.0)),
        seeds((0, math.inf, 1.0), (1, 1.0, 2.0)),
        ((42, ()), (43, ((0, 1.0, 1.0),))),
        ((42, ((0, 1.0, 1.0),)), (43, ((1, 1.0, 1.0),))),
        seeds(*((step, 1.0 / (step + 1), 2.0) for step in range(100))),
    ],
)
def test_any_losses_can_be_drawn(losses: Any) -> None:
    found = report(replace(EFFECT, losses=losses))
    assert drawn.picture(found.change) and html.render(found)


@pytest.mark.parametrize(
    "losses", [seeds((0, -1.7e308, 1.7e308)), seeds((0, 1.7e308, 1.0)), seeds((0, 1e308, 1e307))]
)
def test_huge_losses_can_be_drawn(losses: Any) -> None:
    found = report(replace(EFFECT, losses=losses))
    assert drawn.picture(found.change) and html.render(found)


def hostile(name: str) -> Change:
    """A change of which every text is such a name."""
    return change(
        "effect",
        beside=name,
        worst=replace(NEAR, name=name),
        first=replace(GRADIENT, name=name),
        unmatched=(name,) * 5,
        detail=name,
        likely=name,
        distributions=(name,) * 5,
        operator=ChangedOperator(name, name, 1.0),
        effects=(measured(), replace(measured(), metric=name, why=name), Effect(metric=name, seeds=0, why=name)),
        losses=EFFECT.losses,
    )  # fmt: skip


ATTACKS = (
    *reports.attacks("x"),
    "::error file=a::b",
    "##[add-mask]c",
    "@octocat #1 https://evil.example",
    "| a | b |\n\n# heading\n- [x] `code",
    "{} {name} %0A::set-output name=x::y",
)
_INLINE = ("link_open", "image", "s_open", "em_open", "strong_open", "html_inline")
LIVE = {*_INLINE, "heading_open", "html_block"}


def live(text: str) -> list[str]:
    """What is live in a comment that is not in that on a change without hostile names."""

    def kinds(text: str) -> list[str]:
        rules = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        tokens = [token for it in rules.parse(text) for token in (it, *(it.children or ()))]
        own = ("<br>", "<code>", "</code>", "<sub>", "</sub>")
        return [it.type for it in tokens if it.type in LIVE and it.content not in own]

    plain = kinds(markdown.comment(report(hostile("name"))))
    return kinds(text) if sorted(kinds(text)) != sorted(plain) else []


@pytest.mark.parametrize("name", ATTACKS)
def test_names_are_escaped_in_comment_and_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for verdict in ("pass", "fail", "inconclusive"):
        found = report(hostile(name), verdict)
        assert output.show(found, (), verbose=True)
        printed = capsys.readouterr().out
        for character in "\x1b\r\u202e\u200b\u2066":
            assert character not in printed
        # a line may begin as a command, between two that only the gate can write
        begins, *inside, ends = printed.splitlines()
        assert begins == f"::stop-commands::{ends.strip(':')}" and len(ends) == 36
        assert ends not in inside
        page = html.render(found)
        assert "<img" not in page and "<svg onload" not in page
    assert live(markdown.comment(report(hostile(name)))) == []


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60))
def test_no_name_becomes_live_or_breaks_a_report(name: str) -> None:
    found = report(hostile(name))
    assert live(markdown.comment(found)) == []
    assert terminal.render(found) and html.render(found)


def test_a_report_with_a_change_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for found in (EFFECT, hostile("name"), change("none"), change("rounding", worst=NEAR)):
        path.write_text(document.render(report(found)))
        assert document.load(path).change == found
    many = change(unmatched=tuple(f"layers.{number}.weight" for number in range(1_500)))
    path.write_text(document.render(report(many)))
    read = document.load(path).change
    assert read is not None and read.unmatched == many.unmatched[:1_000]


def test_the_page_draws_the_losses_of_both_sides() -> None:
    page = html.render(report(EFFECT))
    assert page.count('id="change"') == 1 and "mean loss before" in page
    assert 'id="change"' not in html.render(report(change("none")))
