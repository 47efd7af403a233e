"""A catalog on a terminal, in Markdown and as a page: what is told of it, and that no name of it
becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from repro_gate.ops.catalog import Arm, Entry
from repro_gate.report import operator_pages, operators
from repro_gate.report.model import View
from tests.support.operators import DIFFERS, PLATFORM, RAISES, REPEATS, catalog, changed, price, row

WHOLE = catalog(
    row("kernel/index_put_", DIFFERS, documented="deterministic", price=price(2.5, 2.0, 3.1)),
    row("kernel/index_put_", DIFFERS, dtype="bfloat16", documented="deterministic"),
    row("kernel/put_", on=RAISES, documented="raises"),
    row("kernel/always", DIFFERS, DIFFERS),
    row("kernel/kthvalue", documented="raises"),
    row("kernel/secretly", on=RAISES),
    row("kernel/dear", price=price(4.0, 3.0, 5.0)),
    row("kernel/dear-perhaps", price=price(4.0, 0.5, 32.0)),
    row("kernel/empty", Arm(outcome="uninitialised", runs=9, distinct=2)),
    row(
        "kernel/boom",
        Arm(outcome="crash", message="signal 6"),
        Arm(outcome="crash", message="signal 6"),
    ),
    *(row(f"kernel/fine{number}") for number in range(40)),
    documented=(
        Entry(entry="torch.nothing", says="raises"),
        Entry(entry="torch.elsewhere", says="raises", here=False),
    ),
)
HOSTILE = "<img src=x onerror=alert(1)>|`@team` [x](http://e)\n::error::no\x1b[31m\u202e"


def sections(page: operators.Page) -> dict[str, list[str]]:
    return {
        section.title: [cells[0] for cells in section.rows]
        for section in page.sections
        if section.rows or section.always
    }


def test_each_row_stands_where_it_belongs_and_dtypes_are_joined() -> None:
    found = sections(operators.page(WHOLE))
    assert found == {
        "Differ even with the flags": ["kernel/always"],
        "Differ without the flags": ["kernel/index_put_"],
        "Raise with the flags": ["kernel/put_", "kernel/secretly"],
        "Dearer with the flags": ["kernel/index_put_", "kernel/dear"],
        "Read memory before it is written": ["kernel/empty"],
        "Ended their process, or never ended": ["kernel/boom"],
        "Documented by torch, and repeats here": ["kernel/kthvalue"],
        "Differs here, and not documented": ["kernel/always"],
        "Raises here, and not documented as raising": ["kernel/secretly"],
        "Documented as raising, and does not raise here": ["kernel/kthvalue"],
        "Documented by torch, and not measured": ["torch.nothing"],
    }


def test_an_operator_that_torch_lists_under_another_name_is_listed() -> None:
    known = row("kernel/max_unpool2d", on=RAISES, documented="raises")
    known, same, other = (
        type(known)(**{**{name: getattr(known, name) for name in known.__struct_fields__}, **more})
        for more in (
            {"operator": "max_unpool2d"},
            {"case": "opinfo/a", "operator": "nn.functional.max_unpool2d (grad)", "documented": ""},
            {
                "case": "opinfo/b",
                "operator": "nn.functional.max_unpool2d",
                "documented": "",
                "direction": "backward",
            },
        )
    )
    assert sections(operators.page(catalog(known, same, other)))[
        "Raises here, and not documented as raising"
    ] == ["opinfo/b"]


def test_the_terminal_shows_counts_the_rate_and_the_tables() -> None:
    shown = operator_pages.terminal(operators.page(WHOLE), View(width=200))
    for words in (
        "50 rows of 49 cases in 5 min 21 s",
        "flags off: 45 repeats, 3 differs, 1 uninitialised, 1 crash",
        "flags on: 46 repeats, 1 differs, 2 raises, 1 crash",
        (
            "what repeats, with the share that could differ all the same, at 95 %: 9 executions in "
            "45 rows (at most 28.3%)"
        ),
        "float32, bfloat16",
        "differs (in 5 of 9 runs, 3 ULP)",
        "2.50 (2.00 to 3.10)",
    ):
        assert words in shown, shown
    assert "kernel/fine1" not in shown and "INTERRUPTED" not in shown
    rows = (
        *(
            row(f"kernel/{runs}", Arm(outcome="repeats", runs=runs), size=f"{runs}x100")
            for runs in (4, 5, 5, 6, 6, 6, 20, 45)
        ),
    )
    (*_, evidence, small) = operators.page(changed(WHOLE, rows=rows)).summary
    shares = ((6, "3 rows", 39.3), (5, "2 rows", 45.1), (4, "1 row", 52.7))
    told = ", ".join(
        f"{runs} executions in {count} (at most {share}%)" for runs, count, share in shares
    )
    assert evidence.endswith(f"{told}, 20 to 45 in the others")
    assert (
        small == "6 rows of samples below 1,000 elements: too small for a kernel to split its work"
    )
    assert "INTERRUPTED" in operator_pages.terminal(
        operators.page(changed(WHOLE, complete=False)), View(width=200)
    )


def test_a_catalog_in_which_all_is_well_says_so() -> None:
    shown = operator_pages.terminal(operators.page(catalog(row("a"))), View(width=120))
    assert shown.count("none") == 2 and "Raise with" not in shown
    assert operator_pages.markdown(operators.page(catalog(row("a")))).count("None.") == 2


def test_a_long_table_is_cut_on_a_terminal_and_whole_with_v_and_in_markdown() -> None:
    page = operators.page(catalog(*(row(f"k/{number:03}", DIFFERS) for number in range(100))))
    assert "k/099" not in operator_pages.terminal(
        page
    ) and "and 75 more (-v shows them)" in operator_pages.terminal(page)
    assert "k/099" in operator_pages.terminal(
        page, verbose=True
    ) and "k/099" in operator_pages.markdown(page)


def test_the_markdown_page_names_machine_torch_date_and_command() -> None:
    text = operator_pages.markdown(operators.page(WHOLE))
    for words in (
        "# Which torch operators",
        "`2.13.0+cpu`",
        "A CPU",
        "2026-11-23",
        "`repro-gate ops`",
        "## Differ even with the flags",
    ):
        assert words in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag, *(name for name, _ in attrs)]


@pytest.mark.parametrize("compared", [False, True])
def test_no_name_of_a_catalog_becomes_markup(compared: bool) -> None:
    platform = type(PLATFORM)(torch=HOSTILE, device="cpu", device_name=HOSTILE)
    evil = catalog(
        row(HOSTILE, Arm(outcome="crash", message=HOSTILE), dtype=HOSTILE),
        command=HOSTILE, date=HOSTILE, platform=platform, notes=(HOSTILE,), documented=(Entry(entry=HOSTILE, says="raises"),),
    )  # fmt: skip
    page = (
        operators.compared(catalog(row(HOSTILE, dtype=HOSTILE)), evil)
        if compared
        else operators.page(evil)
    )
    shown = operator_pages.terminal(page, View(width=200))
    assert (
        "\x1b" not in shown
        and "\u202e" not in shown
        and not any(line.startswith("::") for line in shown.splitlines())
    )
    text = operator_pages.markdown(page)
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # without its code spans
    assert (
        "<img" not in outside
        and "@team" not in outside
        and "http" not in outside
        and "\x1b" not in text
        and "\u202e" not in text
    )
    tags = _Tags()
    tags.feed(operator_pages.html(page))
    assert (
        not {"img", "script", "onerror", "a", "href", "src"} & set(tags.found)
        and "h2" in tags.found
    )


def test_a_comparison_tells_what_moved_and_that_nothing_did() -> None:
    after = changed(
        WHOLE,
        platform=type(PLATFORM)(torch="2.14.0", device="cpu", device_name="A CPU"),
        rows=(
            row("kernel/put_", DIFFERS, RAISES),
            row("kernel/index_put_", REPEATS),
            *WHOLE.rows[5:],
            row("kernel/new"),
        ),
    )
    page = operators.compared(WHOLE, after)
    assert page.summary == ("1 newly differs; 1 newly repeats; 1 is new; 3 are gone",)
    assert ("torch", "2.13.0+cpu -> 2.14.0") in page.facts
    assert sections(page)["Newly differing"] == ["kernel/put_"]
    shown = operator_pages.terminal(page, View(width=160))
    assert "flags off" in shown and "differs (in 5 of 9 runs, 3 ULP)" in shown
    same = operators.compared(WHOLE, changed(WHOLE, complete=False))
    assert (
        same.summary[0].startswith("nothing changed")
        and "interrupted" in same.summary[1]
        and not sections(same)
    )


def test_rows_that_only_one_of_two_different_measurements_has_are_counted_and_not_compared() -> (
    None
):
    one = changed(
        catalog(row("kernel/index_put_"), row("kernel/both")),
        scope="some",
        command="repro-gate ops --only index",
    )
    two = changed(
        catalog(row("kernel/max_pool2d"), row("kernel/both")),
        scope="some",
        command="repro-gate ops --only pool",
    )
    page = operators.compared(one, two)
    left = (
        "not compared, since the other did not measure them: 1 row of the first catalog and 1 row "
        "of the second"
    )
    assert page.summary == (
        "nothing changed: no row has another outcome, no price's interval lies apart",
        left,
    ) and not sections(page)
    nothing = operators.compared(one, changed(two, rows=two.rows[:1]))
    assert (
        nothing.summary[0] == "no row is in both catalogs"
        and "2 rows of the first catalog and 1 row" in nothing.summary[1]
    )
    assert (
        operators.compared(one, changed(two, rows=one.rows[:1]))
        .summary[1]
        .endswith(": 1 row of the first catalog")
    )
    assert len(operators.compared(catalog(row("kernel/both")), WHOLE).summary) == 1, (
        "between two whole ones they are new or gone"
    )
