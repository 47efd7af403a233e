"""The page stands by itself: in order, nothing loaded, no script, nothing from outside is an
element, never too large."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate._version import DOCS_URL
from repro_gate.compare.heat_map import LEVELS
from repro_gate.compare.model import Comparison, GrowthPoint, HeatMap, HeatRow, NoiseFloor
from repro_gate.diagnosis.model import ShownOperator, ShownUse
from repro_gate.report import html
from repro_gate.report.heat_map import Layout, maps
from repro_gate.report.model import Origin, Reason, Report, View
from tests.support import reports

VIEW = View(run_url="https://github.com/octo/training/actions/runs/7")
ORIGIN = Origin("octo/training", "f" * 40, 7, 1)
_CELLS = {
    "loss": " " + "." * 4 + "5" * 46,
    "gradient": " " + "." * 3 + "1357" + "9" * 43,
    "parameter": "...." + "?" * 47,
}
_ROWS = (
    HeatRow("main", kind, "" if kind == "loss" else "blocks.3.attn", 1 + (kind != "loss"), cells)
    for kind, cells in _CELLS.items()
)
MAP = HeatMap(steps=50, width=1, depth=3, rows=tuple(_ROWS))
_GROWTH = tuple(GrowthPoint(step=n, weight_l2=1e-6 * 2**n, max_ulp=3 + n) for n in range(3, 50))
PAIR = replace(reports.DIFFERENT, heat_map=MAP, growth=_GROWTH)
CAUSE = replace(
    reports.WHY,
    excerpt=((40, "rng = numpy.random"), (41, "x = rng.default_rng()  # <b>"), (42, "")),
)
FAIL = replace(reports.EXPLAINED, determinism=reports.compared(PAIR), diagnosis=CAUSE)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its texts; the page must be well-formed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return "".join(text for tag, text in self.texts if tag != "style")


_LOADING = frozenset(
    re.findall(r"\w+", "script link img iframe object embed form base use image foreignobject")
)
ALL = {
    **reports.ALL,
    "explained": FAIL,
    "hostile": reports.hostile(),
    "with run": replace(FAIL, origin=ORIGIN),
}


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_the_page_is_well_formed_and_loads_and_runs_nothing(report: Report) -> None:
    elements = Elements(html.render(report, VIEW))
    assert not _LOADING & {tag for tag, _ in elements.found}
    for tag, attributes in elements.found:
        assert not {"src", "style", "xlink:href", "srcset"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        address = attributes.get("href", "#")
        ours = ("#", DOCS_URL, "https://github.com/octo/training/")
        assert tag != "a" or address.startswith(ours), address
    style = next(text for tag, text in elements.texts if tag == "style")
    assert "url(" not in style and "@import" not in style
    (policy,) = (
        item["content"]
        for _, item in elements.found
        if item.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy


def _shapes(report: Report) -> set[tuple[str, tuple[str, ...]]]:
    """The elements of a report's page, each with the names of its attributes."""
    found = Elements(html.render(report, VIEW)).found
    return {(tag, tuple(sorted(attributes))) for tag, attributes in found}


_OURS = set().union(*map(_shapes, (*reports.ALL.values(), FAIL, reports.hostile("a name"))))


@settings(max_examples=8, deadline=None)
@given(st.text(max_size=60))
def test_no_text_from_outside_becomes_an_element_or_is_hidden(name: str) -> None:
    for text in reports.attacks(name):
        assert _shapes(reports.hostile(text)) <= _OURS
    page = html.render(reports.hostile(), VIEW)
    assert "\u202e" not in page and "\x1b" not in page


def test_a_failing_gate_is_told_in_order_with_links_and_no_empty_part() -> None:
    page = html.render(replace(FAIL, origin=ORIGIN), VIEW)
    places = [page.index(words) for words in _ORDER]
    assert places == sorted(places)
    page = html.render(reports.WEAKENED)
    assert page.index("Weakened checks") < page.index('id="cost-and-time"')
    page = html.render(reports.DRIFT)
    assert page.index(">Against the baseline<") < page.index('id="cost-and-time"')
    page = html.render(FAIL)
    for name in ("data/checksums", "env/lockfile"):
        assert f'<a href="{DOCS_URL}/checks/{name}.md"><code>{name}</code></a>' in page
    passed = tuple(reports.check(f"code/c{n}", "pass") for n in range(250))
    assert "and 50 more" in html.render(replace(FAIL, checklist=passed))
    text = Elements(html.render(reports.NOTHING)).text
    parts = ("Heat map", "Growth", "How the cause was found", "Config hash", "Weakened")
    for words in (*parts, "None", "nan"):
        assert words not in text, words


_ORDER = (
    'id="verdict"',
    '<tr class="cause">',
    "At a glance",
    "<td>remedy</td>",
    "Farthest apart at the end",
    "See it again",
    'id="map"',
    'id="growth"',
    'id="how-the-cause-was-found"',
    'id="cost-and-time"',
    'id="checklist"',
    'id="runs"',
)


def test_the_first_words_of_the_page_name_the_condition_or_what_failed() -> None:
    text = " ".join(Elements(html.render(reports.CONDITIONAL)).text.split())
    assert "⚠ pass only with PYTHONHASHSEED=42: without it the runs differ because of" in text
    assert "⚠" not in Elements(html.render(replace(reports.CONDITIONAL, robust=True))).text
    heading = html.render(reports.RESUMED).partition('<h1 id="verdict">')[2].partition("</h1>")[0]
    assert "resumed at step 6, it is not the same training" in heading


def test_the_cause_is_marked_linked_at_its_commit_and_tells_its_own_reason() -> None:
    page = html.render(replace(FAIL, origin=ORIGIN), VIEW)
    marked = re.findall(r'<tr class="cause"><th scope="row">(\d+)</th><td><code>(.*?)</code>', page)
    assert marked == [("41", "x = rng.default_rng()  # &lt;b&gt;")]
    assert f"/octo/training/blob/{reports.SUBJECT.commit}/src/train.py#L41" in page
    changed = replace(FAIL.subject, uncommitted=("src/train.py",))
    for unlinked in (
        FAIL,  # no workflow, no repository
        replace(FAIL, origin=ORIGIN, diagnosis=replace(CAUSE, file="../train.py", also=())),
        replace(FAIL, origin=ORIGIN, subject=changed),  # the commit has another line
    ):
        assert "train.py#L" not in html.render(unlinked, VIEW)
    more = Reason("determinism/nonfinite", "losses are NaN from step 9 on", "look at the data")
    page = html.render(replace(FAIL, reasons=(*FAIL.reasons[:1], more)))
    assert FAIL.reasons[0].id == "determinism/diverged"
    assert FAIL.reasons[0].message not in page
    assert more.message in page and more.remedy in page
    without = html.render(replace(FAIL, diagnosis=None, reasons=reports.FAIL.reasons[:1]))
    assert "See what feeds blocks.3.attn.weight" in without
    assert FAIL.reasons[0].message not in without, "heading and table say it"


def test_the_map_says_each_cell_in_words_and_of_a_pass_what_the_flags_bought() -> None:
    page = html.render(FAIL, VIEW)
    assert "<title>gradient blocks.3.attn, steps 3 to 4: about 8 ULP apart</title>" in page
    assert "steps 3 to 49: differs, distance not measured</title>" in page
    assert page.count('class="ring"') == 1
    assert "<td>step 3</td><td>47 of 50</td><td>about 512 ULP apart</td>" in page
    rows = tuple(replace(row, cells="." * 51) for row in MAP.rows)
    floor = replace(reports.NOISE, heat_map=MAP, losses=reports.DIFFERENT.losses)
    same = replace(reports.SAME, heat_map=replace(MAP, rows=rows))
    text = Elements(html.render(replace(_with(same, floor), verdict="pass"), VIEW)).text
    assert "every cell is bitwise identical" in text and "Without the flags" in text
    assert "no rounding" not in text and "begins as rounding" not in text


def _with(pair: Comparison, floor: NoiseFloor | None = None) -> Report:
    return replace(FAIL, determinism=reports.compared(pair), noise_floor=floor)


def test_growth_is_drawn_beside_the_noise_floor_and_says_what_kind_of_divergence_it_is() -> None:
    losses = tuple((step, 1.0, 1.0 + 2.0**-step) for step in range(50))
    pair = replace(PAIR, losses=((3, 1.0, 1.5),))
    for floor, bands in ((replace(reports.NOISE, losses=losses), 1), (None, 0)):
        page = html.render(_with(pair, floor))
        drawn = page.partition('id="growth"')[2].partition("</section>")[0]
        assert (drawn.count('class="band"'), drawn.count('class="line"')) == (bands, 2)
        noise = "0.12" if bands else ""
        assert f"<td>3</td><td>0.5</td><td>{noise}</td><td>8e-06</td>" in drawn
    for cells, words in (
        ("...123456789abcde", "begins as rounding, about 2^1 ULP"),
        ("...kkkkkkkkkkkkk", "another training"),
        ("." * 4 + "?" * 46 + "n", ""),  # what no replay measured claims nothing
    ):
        rows = (HeatRow("main", "loss", "", 1, cells),)
        pair = replace(PAIR, heat_map=replace(MAP, rows=rows), growth=())
        text = Elements(html.render(_with(pair))).text
        assert words in text and ("begins as rounding" in text) is words.startswith("begins")
        assert "shows the farthest" not in text


def test_any_losses_and_steps_are_drawn_small() -> None:
    for losses, row in (
        (((0, 1.0, 1.0), (1, 2.0, 2.0)), ""),
        (((0, 1.0, math.nan), (1, 1.0, math.inf)), ""),
        (((-1, 0.0, 5e-324), (7, 0.0, 1.7e308)), "<td>-1</td><td>4.9e-324</td>"),
        (tuple((step, 0.0, float(step)) for step in range(10_000)), "<td>9,900</td>"),
    ):
        page = html.render(_with(replace(PAIR, losses=losses, growth=())))
        assert ('id="growth"' in page) is bool(row) and row in page
        assert page.count("<tr>") < 160 and len(page) < 60_000
        Elements(page)
    for cells, growth, each in (("5???????", _GROWTH[:12], 4), ("????????", (), 1)):
        rows = tuple(HeatRow("main", "gradient", f"b{n}", 1, " " + cells * 12) for n in range(3))
        drawn = HeatMap(steps=96, width=1, depth=1, rows=rows)
        shown = maps(_with(replace(PAIR, heat_map=drawn, growth=growth)), 40)[0]["layout"]
        assert isinstance(shown, Layout) and shown.each == each


def _noise(rows: int, columns: int) -> HeatMap:
    """The worst map: no two neighbours of one colour."""
    draw = random.Random(1)
    lines = ("".join(draw.choices(".?" + LEVELS, k=columns)) for _ in range(rows))
    found = tuple(
        HeatRow("main", "gradient", f"blocks.{n}.attention", 25, line)
        for n, line in enumerate(lines)
    )
    return HeatMap(steps=1000, width=10, depth=3, rows=found)


def test_the_largest_report_is_a_page_of_at_most_a_mebibyte_that_says_it_is_coarser() -> None:
    evidence = tuple("x" * 8_000 for _ in range(500))
    found = reports.check("code/c", "fail", "y" * 8_000, evidence)
    checks = tuple(replace(found, id=f"code/c{n}") for n in range(1000))
    losses = tuple((step, 1.0, 1.0 + 1e-9 * step) for step in range(10_000))
    pair = replace(PAIR, heat_map=_noise(200, 101), losses=losses, steps=1000)
    floor = replace(reports.NOISE, heat_map=_noise(200, 101), losses=losses)
    text = "<&>" * 2_700
    use = ShownUse(factor=text, call=text, file=text, line=1, count=1)
    operator = ShownOperator(name=text, phase=text, file=text, line=1)
    excerpt = tuple((number, text) for number in range(40, 51))
    cause = replace(CAUSE, uses=(use,) * 200, operators=(operator,) * 50, excerpt=excerpt)
    crashed = tuple(replace(run, outcome="crashed", log_tail=(text,) * 200) for run in FAIL.runs)
    wide = replace(_with(pair, floor), checklist=checks, runs=FAIL.runs * 300)
    deep = replace(FAIL, diagnosis=replace(cause, also=(cause,) * 20), runs=crashed * 100)
    for report, words in ((wide, "shows the farthest of them"), (deep, "")):
        page = html.render(report, VIEW)
        assert len(page.encode()) <= html.MAX_BYTES
        assert words in page and "The page was shortened" in page
        Elements(page)
