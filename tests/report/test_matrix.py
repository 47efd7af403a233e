"""Several reports: one comment on all of them, and each finding, check and input that differs between
two is one row."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from repro_gate.report import matrix
from repro_gate.report.matrix import render, worst_of
from repro_gate.report.model import Origin, Reason, Report, View
from tests.support import reports


def cell(report: Report, gpu: str, folder: str = "repro-gate-report") -> Report:
    """The report as if it were of that GPU, in a workflow run."""
    subject = replace(report.subject, versions={"gpu-model": gpu, "device": "cuda"})
    origin = Origin("octo/training", "c" * 40, 7, 1, folder)
    return replace(report, subject=subject, origin=origin, config_hash=reports.ADDRESS)


A100 = cell(reports.PASS, "A100")
H100 = cell(reports.EXPLAINED, "H100")
L4 = cell(reports.INCONCLUSIVE, "L4")


def rows(text: str) -> list[list[str]]:
    """The table's rows below its header."""
    lines = text.partition("\n<details>")[0].splitlines()
    _, _, *table = [line for line in lines if line.startswith("| ")]
    return [[part.strip() for part in line.strip("|").split("|")] for line in table]


def test_one_table_has_a_row_for_each_kind_and_below_it_each_failure_says_what_to_do() -> None:
    text = render([H100, A100])
    assert text.startswith("## ❌ Repro Gate: fail (1 fail, 1 pass)\n")
    assert text.count("| Where |") == 1
    first, second = rows(text)
    same = "✅ pass: bitwise identical: 202 tensors, 50 steps, seed 42"
    assert first[:3] == ["`A100`", same, "–"]
    assert second[::2][:2] == ["`H100`", "**step 3**, gradient of `blocks.3.attn.weight`"]
    cause = "because of `src/train.py:41` (unseeded-rng)"
    assert second[1] == f"❌ fail: two runs with seed 42 diverge at step 3 {cause}"
    for row in (first, second):
        assert row[3].startswith("**12.4% slower") and reports.ADDRESS.platform[7:19] in row[4]
    below = render([A100, H100]).partition("<details>")[2]
    assert below.startswith("<summary>❌ <code>H100</code>: ") and "A100" not in below
    assert "| remedy | give the generator a seed of its own" in below
    assert "```sh\nrepro-gate run repro.yml --seed 42 --steps 50\n```" in below
    assert "<details>" not in render([A100, cell(reports.PASS, "H100")])


def test_a_pass_under_a_condition_is_seen_in_its_row_and_above() -> None:
    only = cell(reports.CONDITIONAL, "H100")
    text = render([A100, only])
    assert text.startswith("## ⚠️ Repro Gate: pass (2 pass)\n")
    first, second = rows(text)
    assert first[1].startswith("✅ pass: bitwise identical")
    assert second[1].startswith("⚠️ pass: only with PYTHONHASHSEED=42: without it the runs differ")
    assert second[1].endswith("because of `src/data.py:6`")
    assert render([only, cell(reports.FAIL, "L4")]).startswith("## ❌ Repro Gate: fail ")


def test_the_worst_verdict_is_that_of_all_in_any_order_and_twins_are_told_apart() -> None:
    for cells, worst in (
        ([A100], "pass"),
        ([A100, L4], "inconclusive"),
        ([A100, L4, H100], "fail"),
    ):
        assert (
            worst_of(cells).verdict == worst
            and f"Repro Gate: {worst} (" in render(cells).splitlines()[0]
        )
    cells = [A100, H100, L4]
    for seed in range(5):
        assert render(random.Random(seed).sample(cells, 3)) == render(cells)
    twins = [cell(reports.PASS, "H100", "one"), cell(reports.FAIL, "H100", "two"), A100]
    assert [row[0] for row in rows(render(twins))] == ["`A100`", "`H100, one`", "`H100, two`"]


def test_it_fits_into_any_limit_and_width_and_stays_text() -> None:
    for limit in (65_536, 6_000, 2_000, 1_000, 300):
        many = tuple(Reason("a/b", "long " * 500, "long " * 500) for _ in range(50))
        cells = [
            replace(cell(reports.EXPLAINED, f"GPU {number}"), reasons=many) for number in range(8)
        ]
        text = render(cells, View(limit=limit))
        assert len(text) <= limit and "fail" in text
    for encoding in ("utf-8", "ascii"):
        for width in (40, 80, 200):
            worst = reports.hostile()
            for a, b in ((reports.PASS, worst), (worst, reports.hostile("other"))):
                for line in _shown(a, b, width, encoding).splitlines():
                    assert line.isprintable() and (encoding == "ascii" or cell_len(line) <= width)


def test_names_are_inert_wherever_they_stand() -> None:
    text = render([cell(reports.hostile(), reports.HOSTILE), A100])
    # without blocks of code, then without spans
    prose = re.sub(r"^(`{3,})(?:sh|text)\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    # HTML, where a name stands in `<code>`: see below
    prose = re.sub(r"<summary>.*</summary>", "", prose)
    prose = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", prose)
    assert not re.search("<img|@octocat|evil.example|:tada:|::error", prose), prose
    (summary,) = re.findall(r"<summary>(.*)</summary>", text)
    assert re.fullmatch(r"❌ <code>[^<]*</code>: why, and what to do", summary)
    assert len(rows(text)) == 2  # no name ends a cell or a row


@given(name=st.text(max_size=80))
def test_no_name_adds_a_row_or_a_column(name: str) -> None:
    found = rows(render([cell(reports.FAIL, name), A100]))
    assert [len(row) for row in found] == [5, 5]


_NAMES = ("before.json", "after.json")


def _shown(a: Report, b: Report, width: int = 2_000, encoding: str = "utf-8") -> str:
    return matrix.between(a, b, _NAMES, View(width=width, encoding=encoding))


def differences(a: Report, b: Report) -> dict[str, list[str]]:
    """Label -> both values, of a terminal so wide that nothing is broken."""
    found = (line.split("  ") for line in _shown(a, b).splitlines()[1:])
    cells = [[cell.strip() for cell in line if cell.strip()] for line in found]
    return {label: values for label, *values in cells}


def test_each_difference_is_a_row_and_two_equal_reports_have_none() -> None:
    rows = differences(reports.PASS, reports.EXPLAINED)
    assert rows["verdict"] == ["pass", "fail"] and "step 3, gradient" in rows["diverges at"][1]
    assert "src/train.py:41" in rows["cause"][1]
    assert rows["check data/checksums"] == ["pass", "fail"]
    assert not {"noise floor", "cost", "check env/lockfile"} & rows.keys()
    fewer = tuple(replace(item, message="other words") for item in reports.CHECKLIST[1:])
    rows = differences(reports.PASS, replace(reports.PASS, checklist=fewer))
    assert rows == {"check code/committed": ["warn", "none"]}
    for name in reports.ALL:
        assert _shown(reports.ALL[name], reports.ALL[name]).split() == list(_NAMES)
    many = reports.address(recipe={f"data/{at:03}": at for at in range(100)})
    changed = reports.address(recipe=dict.fromkeys(many.inputs.recipe, 0))
    a, b = (replace(reports.LOCKED, config_hash=item) for item in (many, changed))
    assert _shown(a, b).endswith("\nand 59 more\n")
    assert len(_shown(a, b).splitlines()) < 50


def test_two_costs_say_whether_their_intervals_overlap() -> None:
    for bounds, words in (
        ((14.0, 20.0), "the intervals overlap: no change is shown"),
        ((15.0, 20.0), "the intervals do not overlap"),
    ):
        cost = replace(reports.COST, determinism_cost_pct=17.0, ci95=bounds, default_step_ms=8.0)
        dear = replace(reports.PASS, cost=cost)
        for a, b in ((reports.PASS, dear), (dear, reports.PASS)):
            assert differences(a, b)["cost"][1].endswith(words)
        assert differences(reports.PASS, replace(reports.PASS, cost=None))["cost"][1] == "none"


def test_inputs_that_changed_are_named_and_what_is_no_input_is_shown_as_it_is_claimed() -> None:
    for inputs, rows in (
        (
            {"seed": 7, "data/new": 1.5},
            {"recipe seed": ["42", "7"], "recipe data/new": ["none", "1.5"]},
        ),
        ({"seed": 10**29}, {"recipe seed": ["42", f"1{'0' * 29}"]}),
    ):
        hashed = reports.address(recipe={**reports.ADDRESS.inputs.recipe, **inputs})
        assert differences(reports.LOCKED, replace(reports.LOCKED, config_hash=hashed)) == rows
