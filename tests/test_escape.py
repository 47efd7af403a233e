"""Claims about `escape`."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from repro_gate import escape
from repro_gate.escape import log_guard
from tests.support.reports import HOSTILE

_ACTIVE = r"""
` `` ``` | \ < > <b> </code> <!-- &lt; &#64; [ ]( ) ![ @user #12 GH-7 :tada: https://e.vil www.e.vil a@b.co * _ ~~ $ $$ ^ # - + 1.
--- === :: ::error:: ##[error] % %0A , " ' ( ; deadbeef 0123456789abcdef0123456789abcdef01234567 word model.py é 漢
"""
_UNSEEN = ("\n", "\r\n", "\t", " ", "    ", *"\x1b\x07\u202e\u2066\u200b\ufe0f\ud800")
_PIECES = st.sampled_from((*_ACTIVE.split(), *_UNSEEN))
TEXTS = st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join))
_ACTIVE_IN_PROSE = re.compile(
    r"[@#<>&`|\[\]{}*_~^$\\/=]|:\w|\bwww\.|(?<!\w)gh-\d|(?<![0-9A-Za-z])[0-9a-f]{7,40}(?![0-9A-Za-z])",
    re.IGNORECASE,
)


def _parse(markdown: str) -> list[Token]:
    """A text parsed as GitHub would: HTML on, tables and strikethrough too."""
    parser = MarkdownIt("commonmark", {"html": True})
    return parser.enable(["table", "strikethrough"]).parse(markdown)


def _inline(markdown: str) -> list[Token]:
    """The inline tokens of a text that must be one paragraph."""
    blocks = _parse(markdown)
    assert [block.type for block in blocks] in ([], _PARAGRAPH), markdown
    return list(blocks[1].children or []) if blocks else []


_PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]


def _cells(markdown: str) -> list[Token]:
    """The inline blocks of the one body row of a table that holds `markdown` in its first cell."""
    blocks = _parse(f"| a | b |\n| --- | --- |\n| {markdown} | end |\n")
    return [block for block in blocks if block.type == "inline"][2:]


def _only_own_tags(tokens: list[Token]) -> bool:
    html = (token.content for token in tokens if token.type == "html_inline")
    return {*html} <= {"<code>", "</code>"}


@given(TEXTS)
@example(HOSTILE)
def test_prose_holds_nothing_but_plain_words_and_code(text: str) -> None:
    tokens = _inline(escape.for_markdown(text))
    assert {token.type for token in tokens} <= {"text", "code_inline", "html_inline"}
    assert _only_own_tags(tokens)
    between, inside_code = "", False
    for token in tokens:
        if token.type == "html_inline":
            inside_code = token.content == "<code>"
        elif token.type == "text" and not inside_code:
            between += token.content
    assert not _ACTIVE_IN_PROSE.search(between), between


@given(TEXTS, st.booleans())
@example(HOSTILE, False)
@example("1. `", True)
def test_neither_prose_nor_code_ever_breaks_out_of_a_table_cell(text: str, prose: bool) -> None:
    safe = escape.for_markdown(text) if prose else escape.for_code_span(text)
    cells = _cells(safe)
    assert len(cells) == 2 and cells[1].content == "end"
    assert _only_own_tags(list(cells[0].children or []))


@given(TEXTS, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
@example(HOSTILE, "ascii")
@example("`", "ascii")
@example(" ` ", "ascii")
@example("~~~\n```\n````", "ascii")
def test_code_shows_the_text_itself_and_ends_where_we_end_it(text: str, encoding: str) -> None:
    tokens = _inline("x" + escape.for_code_span(text) + "x")
    assert {token.type for token in tokens} <= {"text", "code_inline", "html_inline"}
    assert _only_own_tags(tokens)
    shown = "".join(token.content for token in tokens if token.type != "html_inline")
    assert shown[1:-1] == (escape.for_terminal(text) or " ")
    blocks = _parse(f"before\n\n{escape.for_code_block(text, 'text')}\n\nafter\n")
    assert [block.type for block in blocks] == [*_PARAGRAPH, "fence", *_PARAGRAPH]
    assert blocks[3].info == "text"
    escape.for_encoding(escape.for_terminal(text), encoding).encode(encoding)


@given(TEXTS)
@example(HOSTILE)
@pytest.mark.parametrize(
    "function",
    [escape.for_terminal, escape.for_code_span, escape.for_markdown, escape.for_workflow_property],
)
def test_every_character_that_is_printed_is_seen(function: Callable[[str], str], text: str) -> None:
    for char in function(text):
        assert char.isprintable() and char not in "\u034f\u115f\u3164\ufe0f\u2800", (
            f"U+{ord(char):04X}"
        )
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def test_what_is_not_seen_is_spelled_out_and_prose_stays_readable() -> None:
    for char in "\u202a\u2066\u200e\u061c\u200b\u2060\ufeff\x9b\x7f":
        shown = escape.for_terminal(f"a{char}b")
        assert shown.isascii() and f"{ord(char):02x}" in shown
    for text in ("layer1.weight", "Größe 漢字 😀", "C:\\data\\x", "loss = 0x1.8p+0"):
        assert escape.for_terminal(text) == text
    for text in (
        "the gradient of blocks.3.attn.weight diverges at step 3.",
        "set CUBLAS_WORKSPACE_CONFIG=:4096:8, then start",
        "1. not a list",
        "12.4% slower: 3 ULP, 1.2e-07 and UTF-8",
    ):
        assert escape.for_markdown(text).replace("`", "") == text
    call = escape.for_markdown("call `torch.seed()` (model.py:41), e.g. twice")
    assert call == "call `torch.seed()` (`model.py:41`), e.g. twice"
    assert [escape.and_more(left) for left in (-1, 0, 1)] == ["", "", "and 1 more"]
    assert escape.and_more(1_200, "input") == "and 1,200 more inputs"
    assert escape.and_more(1, "input") == "and 1 more input"
    files = [escape.counted(number, "file", verb) for number in (1, 2_000) for verb in ("", "are")]
    assert files == ["1 file", "1 file is", "2,000 files", "2,000 files are"]
    counts = [escape.counted(2, one) for one in ("entry", "loss", "batch", "process", "step")]
    assert counts == ["2 entries", "2 losses", "2 batches", "2 processes", "2 steps"]
    assert escape.counted(1, "item", "differ") == "1 item differs"
    lists = [escape.listed(("a", "b", "c"), most) for most in (2, 3, 4)]
    assert lists == ["a, b and 1 more", "a, b, c", "a, b, c"]


@given(TEXTS)
@example(HOSTILE)
def test_a_workflow_message_is_one_line_that_decodes_to_what_was_meant(text: str) -> None:
    data, value = escape.for_workflow_data(text), escape.for_workflow_property(text)
    assert "\n" not in data and "\r" not in data and re.fullmatch(r"(?:[^%]|%25|%0A)*", data)
    lines = [escape.for_terminal(line) for line in text.replace("\r\n", "\n").split("\n")]
    assert data.replace("%0A", "\n").replace("%25", "%").split("\n") == lines
    assert not set(value) & {"\n", "\r", ",", ":"}
    meant = value.replace("%3A", ":").replace("%2C", ",").replace("%25", "%")
    assert meant == escape.for_terminal(text)


@given(st.text(), st.integers(1, 50))
def test_a_clipped_text_fits_and_keeps_both_ends(text: str, limit: int) -> None:
    short = escape.clip(text, limit)
    assert len(short) <= limit
    assert short == text if len(text) <= limit else "…" in short
    if len(text) > limit >= 4:
        assert short[0] == text[0] and short[-1] == text[-1]


def test_a_long_hostile_name_takes_no_long_time() -> None:
    for text in ("`", ")(", "(", "a.", "` ", "-a", "`a "):
        long = text * (200_000 // len(text)) + "("
        begin = time.perf_counter()
        escape.for_markdown(long)
        escape.for_code_span(long)
        escape.for_code_block(long)
        assert (
            time.perf_counter() - begin < 5
        )  # a quadratic step over 200,000 characters takes minutes


# Nothing that is printed between the gate's two lines is a workflow command.


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, BrokenPipeError])
def test_a_stop_is_ended_on_a_line_of_its_own_whatever_happens_and_each_has_its_own_token(
    error: type[BaseException] | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    tokens = set()
    for _ in range(2):
        with pytest.raises(error) if error else nullcontext(), log_guard():
            print("::error::forged\nhalf a line", end="" if error else "\n")
            if error is not None:
                raise error
        first, *inside, last = [line for line in capsys.readouterr().out.splitlines() if line]
        assert inside == ["::error::forged", "half a line"]
        assert last == f"::{first.removeprefix('::stop-commands::')}::" and len(last) >= 36
        tokens.add(last)
    assert len(tokens) == 2


def test_elsewhere_nothing_is_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("", "1"):
        monkeypatch.setenv("GITHUB_ACTIONS", value)
        with log_guard():
            print("x")
        assert capsys.readouterr().out == "x\n"
