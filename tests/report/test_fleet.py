"""The answer of a fleet check as it is shown: the last line, one table, and nothing of a hostile node
that becomes live."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.compare.fingerprint import ANY
from repro_gate.compare.fleet import AGREES, DIFFERS, NOTHING, UNSTEADY, Apart, Fleet, Group
from repro_gate.compare.model import STEPS, Divergence
from repro_gate.report.fleet import as_html, as_json, as_markdown, on_terminal
from repro_gate.report.model import View
from tests.report.test_html import Elements
from tests.support import reports
from tests.support.golden import golden

GOLDEN = Path(__file__).parent / "golden"
FIRST = Divergence(step=312, kind="gradient", name="blocks.3.mlp.weight")
KINDS = "kinds that differ in any step: loss, gradient"
SOMEWHERE = Divergence(step=0, kind="loss", name=ANY, detail=KINDS)
APART = (Apart("gpu.0.ecc-corrected", "3", "0"), Apart("gpu-uuid", "GPU-5e1f", None))


def group(kind: str, *nodes: str, first: Divergence | None = None, **more: object) -> Group:
    paths = tuple(f"out/{node}.json" for node in nodes)
    return Group(kind=kind, nodes=nodes, reports=paths, first_divergence=first, **more)


def fleet(*groups: Group, nodes: int = 0, shared: tuple[str, ...] = ()) -> Fleet:
    each = [node for item in groups for node in item.nodes]
    agreeing = sum(len(item.nodes) for item in groups if item.kind == AGREES)
    return Fleet(nodes=nodes or len({*each}), agreeing=agreeing, groups=groups, shared_names=shared)


MOST = group(AGREES, *(f"gpu-{number}" for number in range(31) if number != 17), "gpu-31")
ODD = group(DIFFERS, "gpu-17", first=FIRST, set_apart=APART)
ANSWER = fleet(
    MOST,
    ODD,
    group(DIFFERS, "gpu-40", "gpu-41", first=SOMEWHERE),
    group(UNSTEADY, "gpu-42", first=replace(FIRST, step=-1, kind="parameter", name="fc.bias")),
    group(NOTHING, "gpu-43", why="deterministic-1 crashed at step 3 with exit code 1."),
)


def last_line(answer: Fleet, width: int = 2_000) -> str:
    return on_terminal(answer, View(width=width)).splitlines()[-1]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (fleet(MOST), "all 31 nodes agree"),
        (
            fleet(MOST, ODD),
            "31 of 32 nodes agree; gpu-17 differs from step 312 on, first in the gradient of blocks.3.mlp.weight",
        ),
        (
            fleet(MOST, group(DIFFERS, "x", first=replace(FIRST, kind="loss", name="loss"))),
            "31 of 32 nodes agree; x differs from step 312 on, first in the loss",
        ),
        (
            fleet(MOST, group(DIFFERS, "x", "y", "z", first=SOMEWHERE)),
            "31 of 34 nodes agree; x and 2 others differ from step 0 on",
        ),
        (
            fleet(MOST, group(DIFFERS, "x", first=replace(FIRST, kind="optimizer", name=STEPS))),
            "31 of 32 nodes agree; x differs from step 312 on, first in the number of steps",
        ),
        (
            fleet(MOST, group(DIFFERS, "x (2.json)", first=SOMEWHERE), shared=("x", "y")),
            "31 of 32 nodes agree; x (2.json) differs from step 0 on; x and 1 other differ from themselves, or reports of others have their names",
        ),
        (
            ANSWER,
            "31 of 36 nodes agree; gpu-17 and 2 others differ; gpu-42 differs from itself from the start, first in the parameter fc.bias; gpu-43 has no result",
        ),
        (
            fleet(MOST, group(UNSTEADY, "x"), group(UNSTEADY, "y")),
            "31 of 33 nodes agree; x and 1 other differ from themselves",
        ),
        (
            fleet(group(DIFFERS, "a"), group(DIFFERS, "b", first=FIRST), group(NOTHING, "c", "d")),
            "no majority among 4 nodes: 2 groups differ; c and 1 other have no result",
        ),
        (
            fleet(MOST, Group(kind=NOTHING, nodes=(), reports=(), why="2 of 33 nodes left no report"), nodes=33),
            "31 of 33 nodes agree; 2 of 33 nodes left no report",
        ),
    ],
)  # fmt: skip
def test_the_last_line_says_it_all_and_is_never_broken(answer: Fleet, line: str) -> None:
    assert last_line(answer) == last_line(answer, 40) == line
    assert json.loads(as_json(answer))["answer"] == line
    assert as_markdown(answer).splitlines()[0].replace("`", "").endswith(line)
    assert line in " ".join(Elements(as_html(answer)).text.split())


def test_the_answer_reads_as_the_golden_files() -> None:
    golden(GOLDEN / "fleet.txt", on_terminal(ANSWER, View(width=100)))
    golden(GOLDEN / "fleet.md", as_markdown(ANSWER))
    page = re.sub("<style>.*</style>", "", as_html(ANSWER), flags=re.DOTALL)
    golden(GOLDEN / "fleet.html", page)
    golden(GOLDEN / "fleet.json", as_json(ANSWER))


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    elements = Elements(as_html(ANSWER))
    assert not elements.open
    tags = {tag for tag, _ in elements.found}
    assert {"h1", "table"} <= tags and not {"script", "link", "img", "iframe"} & tags
    assert "default-src 'none'" in as_html(ANSWER)


def hostile(text: str) -> Fleet:
    first = replace(FIRST, name=text, process=text, detail=text)
    apart = (Apart(text, text, text), Apart(text, text, None))
    return fleet(
        group(AGREES, text, "b"),
        group(DIFFERS, text + "x", first=first, set_apart=apart),
        group(DIFFERS, text + "y", first=replace(first, name=ANY)),
        group(UNSTEADY, text + "z", first=replace(first, process="main")),
        group(NOTHING, text + "u", why=text),
    )


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_no_name_or_fact_becomes_live_anywhere(name: str) -> None:
    for text in reports.attacks(name):
        answer = hostile(text)
        for encoding in ("utf-8", "ascii"):
            shown = on_terminal(answer, View(width=80, encoding=encoding))
            assert all(line.isprintable() for line in shown.splitlines())
            shown.encode(encoding)
        tags = {tag for tag, _ in Elements(as_html(answer)).found}
        assert tags <= {tag for tag, _ in Elements(as_html(hostile("name"))).found}
        found = as_markdown(answer)
        lines = found.splitlines()
        assert len(lines) == 9 and [line[:2] for line in lines] == ["##", "", *["| "] * 7]
        prose = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", found)
        assert not re.search("<img|<svg|@octocat|evil.example|:tada:|::error", prose), prose
        assert all(line.replace("\\|", "").count(" | ") == 3 for line in lines[2:]), lines
        assert as_json(answer).isascii() and json.loads(as_json(answer))["groups"]


def test_long_lists_are_cut_in_the_table_and_whole_in_the_json() -> None:
    many = fleet(MOST, *(group(DIFFERS, f"n{number}", first=FIRST) for number in range(60)))
    facts = tuple(Apart(f"fact-{number}", "1", None) for number in range(10))
    wide = fleet(MOST, replace(ODD, set_apart=facts))
    shown = on_terminal(many, View())
    assert "n48" in shown and "n49 " not in shown and "and 11 more groups, all in the JSON" in shown
    assert "gpu-3, and 27 more" in shown
    assert (
        "fact-7" in (text := on_terminal(wide, View()))
        and "fact-8" not in text
        and "and 2 more" in text
    )
    assert len(json.loads(as_json(many))["groups"]) == 61
    assert len(json.loads(as_json(wide))["groups"][1]["set_apart"]) == 10
