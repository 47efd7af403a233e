"""A catalog on a terminal, in Markdown and as a page: what is told of it, and that no name of it
becomes markup."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from repro_gate.ops.catalog import Arm
from repro_gate.ops.pages import Page, page_of, page_of_both, render
from tests.support.operators import DIFFERS, PLATFORM, RAISES, REPEATS, catalog, changed, price, row

CRASH = Arm(outcome="crash", message="signal 6")
WHOLE = catalog(
    row("kernel/index_put_", DIFFERS, documented="deterministic", price=price(2.5, 2.0, 3.1)),
    row("kernel/index_put_", DIFFERS, dtype="bfloat16", documented="deterministic"),
    row("kernel/put_", on=RAISES, documented="raises"),
    row("kernel/always", DIFFERS, DIFFERS),
    row("kernel/kthvalue", documented="raises"),
    row("kernel/dear", price=price(4.0, 3.0, 5.0)),
    row("kernel/dear-perhaps", price=price(4.0, 0.5, 32.0)),
    row("kernel/empty", Arm(outcome="uninitialised", runs=9)),
    row("kernel/boom", CRASH, CRASH),
    *(row(f"kernel/fine{number}") for number in range(40)),
)
HOSTILE = "<img src=x onerror=alert(1)>|`@team` [x](http://e)\n::error::no\x1b[31m\u202e"


def tables(page: Page) -> dict[str, list[str]]:
    return {title: [cells[0] for cells in rows] for title, rows in page.tables.items() if rows}


def test_each_row_stands_where_it_belongs_and_what_repeats_is_told_with_what_it_excludes() -> None:
    assert tables(page_of(WHOLE)) == {
        "Differ even with the flags": ["kernel/always"],
        "Differ without the flags": ["kernel/index_put_"],
        "Raise with the flags": ["kernel/put_"],
        "Surely more than 1.25 times slower with the flags": ["kernel/index_put_", "kernel/dear"],
        "Read memory before it is written": ["kernel/empty"],
        "Ended their process, or never ended": ["kernel/boom"],
        "Documented by torch, and repeat here": ["kernel/kthvalue"],
        "Documented as raising, and do not raise here": ["kernel/kthvalue"],
    }
    arms = [Arm(outcome="repeats", runs=runs) for runs in (4, 5, 5, 6, 20)]
    *_, evidence = page_of(catalog(*(row(f"k/{n}", arm) for n, arm in enumerate(arms)))).summary
    assert "executed 4 to 20 times, half of it 5 times" in evidence and "45%" in evidence


@pytest.mark.parametrize("form", ["txt", "md", "html"])
def test_every_form_shows_counts_and_tables_of_which_a_long_one_is_cut(form: str) -> None:
    text = re.sub(r"[`|]|<[^>]*>", " ", render(page_of(WHOLE), form))
    text = re.sub(" +", " ", text)
    for words in (
        "49 rows of 48 cases in 5 min 21 s",
        "flags off: 44 repeats, 3 differs, 1 uninitialised, 1 crash",
        "flags on: 46 repeats, 1 raises, 1 differs, 1 crash",
        "float32, bfloat16",
        "differs in 5 of 9 runs, up to 3 ULP",
        "2.50 (2.00 to 3.10)",
    ):
        assert words in text, words
    assert "kernel/fine1" not in text and "INTERRUPTED" not in text
    assert "INTERRUPTED" in render(page_of(changed(WHOLE, complete=False)), form)
    page = page_of(catalog(*(row(f"k/{number:03}", DIFFERS) for number in range(100))))
    short, whole = render(page, form, verbose=False), render(page, form)
    assert "k/099" in whole and "k/099" not in short and "k/024" in short
    assert form == "html" or "75 more" in short


@pytest.mark.parametrize("compared", [False, True])
def test_no_name_of_a_catalog_becomes_markup(compared: bool) -> None:
    evil = catalog(
        row(HOSTILE, Arm(outcome="crash", message=HOSTILE), dtype=HOSTILE),
        command=HOSTILE,
        date=HOSTILE,
        platform=replace(PLATFORM, torch=HOSTILE, device_name=HOSTILE),
        notes=(HOSTILE,),
    )
    clean = catalog(row(HOSTILE, dtype=HOSTILE))
    page = page_of_both(clean, evil) if compared else page_of(evil)
    shown, text, html = (render(page, form) for form in ("txt", "md", "html"))
    assert not any(sign in form for sign in "\x1b\u202e" for form in (shown, text, html))
    assert not any(line.startswith("::") for line in shown.splitlines())
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # without its code spans
    assert not any(sign in outside for sign in ("<img", "@team", "http"))
    assert "<h2>" in html and not re.search(r"<(img|script|a)\b", html)


def test_a_comparison_tells_what_moved_and_that_nothing_did() -> None:
    moved = (row("kernel/put_", DIFFERS, RAISES), row("kernel/index_put_", REPEATS))
    after = changed(
        WHOLE,
        platform=replace(PLATFORM, torch="2.14.0", threads=4),
        rows=(*moved, *WHOLE.rows[5:], row("kernel/new")),
    )
    page = page_of_both(WHOLE, after)
    assert page.summary == ["1 newly differs; 1 newly repeats; 1 new; 3 gone"]
    assert page.facts == [("torch", "2.13.0+cpu -> 2.14.0"), ("threads", "2 -> 4")]
    was, now = (cells[:5] for cells in page.tables["Newly differs"])
    assert was == ("before", "kernel/put_", "forward", "float32", "repeats in 9 runs")
    assert now == ("after", *was[1:4], "differs in 5 of 9 runs, up to 3 ULP")
    same = page_of_both(WHOLE, changed(WHOLE, complete=False))
    assert same.summary[0].startswith("nothing changed") and not tables(same)
    assert "interrupted" in same.summary[1] and same.facts == [("platform", "the same")]
