"""Claims about the comment on several reports."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.report.matrix import render, verdict
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


def test_one_table_has_a_row_for_each_kind_with_verdict_divergence_cause_cost_and_platform() -> (
    None
):
    text = render([H100, A100])
    assert text.startswith("## ❌ Repro Gate: fail (1 fail, 1 pass)\n")
    assert text.count("| Where |") == 1
    first, second = rows(text)
    assert first[:2] == ["`A100`", "✅ pass"] and first[3] == "–"
    assert second[:3] == ["`H100`", "❌ fail", "**step 3**, gradient of `blocks.3.attn.weight`"]
    assert second[3].startswith("[unseeded-rng](") and second[3].endswith("in `src/train.py:41`")
    for row in (first, second):
        assert row[4].startswith("**12.4% slower") and reports.ADDRESS.platform[7:19] in row[5]


def test_below_the_table_each_failure_says_what_to_do_and_a_pass_says_nothing() -> None:
    below = render([A100, H100]).partition("<details>")[2]
    assert below.startswith("<summary>❌ <code>H100</code>: ") and "A100" not in below
    assert "**Remedy:** give the generator a seed of its own" in below
    assert "```sh\nrepro-gate run repro.yml --seed 42 --steps 50\n```" in below
    assert "<details>" not in render([A100, cell(reports.PASS, "H100")])


@pytest.mark.parametrize(
    ("cells", "worst"), [([A100], "pass"), ([A100, L4], "inconclusive"), ([A100, L4, H100], "fail")]
)
def test_the_worst_verdict_is_that_of_all(cells: list[Report], worst: str) -> None:
    assert verdict(cells) == worst and f"Repro Gate: {worst} (" in render(cells).splitlines()[0]


def test_the_order_of_the_reports_changes_nothing() -> None:
    cells = [A100, H100, L4]
    for seed in range(5):
        assert render(random.Random(seed).sample(cells, 3)) == render(cells)


def test_two_of_one_kind_are_told_apart_by_their_folders() -> None:
    twins = [cell(reports.PASS, "H100", "one"), cell(reports.FAIL, "H100", "two"), A100]
    assert [row[0] for row in rows(render(twins))] == ["`A100`", "`H100, one`", "`H100, two`"]


@pytest.mark.parametrize("limit", [65_536, 6_000, 2_000, 1_000, 300, 40, 4])
def test_it_fits_into_any_limit_and_keeps_the_verdict(limit: int) -> None:
    many = tuple(Reason("a/b", "long " * 500, "long " * 500) for _ in range(50))
    cells = [replace(cell(reports.EXPLAINED, f"GPU {number}"), reasons=many) for number in range(8)]
    text = render(cells, View(limit=limit))
    assert len(text) <= limit and "fail" in text


def test_names_are_inert_wherever_they_stand() -> None:
    text = render([cell(reports.hostile(), reports.HOSTILE), A100])
    # without blocks of code, then without spans
    prose = re.sub(r"^(`{3,})sh\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
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
    assert [len(row) for row in found] == [6, 6]
