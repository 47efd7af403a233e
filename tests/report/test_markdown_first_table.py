"""Claims about `report.markdown`'s first table: without a click a reviewer knows what diverged,
where, why, and what determinism costs.

The golden files are comments as they are posted. To refresh them after a wanted change, then read
the difference: `REPRO_GATE_GOLDEN=write pytest tests/report/test_markdown_first_table.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate._version import DOCS_URL
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.markdown import MARKS, comment
from repro_gate.report.model import Origin, Reason, Report, View, WeakenedCheck
from tests.support import reports

_GOLDEN = Path(__file__).parent / "golden"
_NAMES = ("fail", "explained", "pass", "inconclusive", "weakened")
_RUN = "https://github.com/octo/training/actions/runs/7"
_ENTROPY = Reason(
    "random-state/os-entropy",
    "the runs diverged, and training code drew from the operating system's entropy: train.py:41: "
    "rng = default_rng()",
    "seed it from the run's seed",
)


def _comment(name: str) -> str:
    return comment(reports.ALL[name], View(run_url=_RUN))


def _rows(text: str) -> dict[str, str]:
    """The table of the first screen: label -> value, in order."""
    table = text.replace("\u00a0", " ").split("\n\n")[1].splitlines()
    if not table[0].startswith("| **"):
        return {}
    assert table[1] == "| :--- | :--- |" and len(table) <= 8
    found = [re.findall(r"^\| \*\*([A-Za-z ]+)\*\* \| (.+) \|$", line) for line in table]
    assert [len(row) for row in found] == [1, 0, *[1] * (len(table) - 2)], table
    return {label: value for row in found for label, value in row}


def _unfolded(text: str) -> str:
    return re.sub(r"^<details>.*?^</details>$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", _NAMES)
def test_the_comment_reads_as_the_golden_file(name: str) -> None:
    path = _GOLDEN / f"comment-{name}.md"
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        path.write_text(_comment(name), encoding="utf-8")
    assert _comment(name) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", reports.ALL)
def test_the_verdict_and_the_commit_are_always_seen_and_what_was_not_measured_is_not(
    name: str,
) -> None:
    report = reports.ALL[name]
    text = comment(report)
    assert text.startswith(f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}, ")
    assert ("Commit `0123456789ab`" if report.subject.commit else "Commit not in git") in text
    rows = _rows(text)
    assert ("Cost" in rows) is (report.cost is not None)
    assert ("Baseline" in rows) is (report.baseline is not None)
    assert "not measured" not in text and "none" not in rows.values()


def test_what_was_not_proven_is_called_likely_and_what_is_unknown_says_what_was_ruled_out() -> None:
    likely = replace(reports.WHY, confirmed=False, also=(), rate=None)
    text = comment(replace(reports.EXPLAINED, diagnosis=likely))
    assert _rows(text)["Cause"].startswith("**Likely**, not proven: ")
    assert "Confirmed" not in _unfolded(text) and "because of" not in text
    ruled_out = ("the clock", "418 operators agree")
    nothing = Diagnosis(cause="unknown", message="nothing explains it", ruled_out=ruled_out)
    report = replace(reports.EXPLAINED, diagnosis=nothing, reasons=reports.FAIL.reasons[:1])
    rows = _rows(comment(report))
    assert rows["Cause"] == "nothing explains it<br>**Ruled out**: the clock; 418 operators agree"
    assert (
        rows["Remedy"]
        == f"its page says what to try next ([unknown]({DOCS_URL}/causes/unknown.md))"
    )


def test_a_check_that_points_at_the_same_line_is_not_told_beside_the_cause() -> None:
    explained = replace(reports.EXPLAINED, reasons=(*reports.FAIL.reasons, _ENTROPY))

    def table(**cause: object) -> str:
        found = replace(reports.WHY, **cause) if cause else None  # type: ignore[arg-type]
        return comment(replace(explained, diagnosis=found)).split("\n\n")[1]

    at_its_line = comment(explained).split("\n\n")[1]
    assert "`train.py:17` sets" in at_its_line and "the runs diverged, and" not in at_its_line
    assert "sets `torch.backends" not in table(file="train.py", line=17)
    assert "the runs diverged, and" in table()


def test_a_report_that_neither_passed_nor_diverged_says_its_first_reason_in_the_heading() -> None:
    text = comment(reports.DRIFT)
    assert text.startswith("## ❌ Repro Gate: fail, two runs agree, but not with the baseline: ")
    rows = _rows(text)
    assert list(rows)[:2] == ["Baseline", "Remedy"]
    for words in ("differs in `losses`, `weights`", "same inputs, different", "kernel: 6.1.0 ->"):
        assert words in rows["Baseline"]


def test_only_the_first_reasons_are_seen_and_the_rest_is_counted() -> None:
    reasons = tuple(Reason(f"made/up-{index}", f"reason number {index}") for index in range(9))
    text = comment(replace(reports.FAIL, reasons=reasons))
    table, below = text.split("\n\n", 2)[1:]
    assert re.findall(r"reason number (\d)", table) == ["0", "1", "2", "3"]
    assert re.findall(r"reason number (\d)", below) == ["4", "5", "6", "7", "8"]


def test_the_head_that_was_pushed_is_named_and_the_merge_that_was_tested() -> None:
    head = Origin("octo/training", "f" * 40, 7, 1)
    text = comment(replace(reports.LOCKED, origin=head))
    assert "Commit `ffffffffffff`, tested as `0123456789ab`, ⚠️ with 1 uncommitted path" in text
    same = replace(head, head_sha=reports.SUBJECT.commit or "")
    assert "tested as" not in comment(replace(reports.LOCKED, origin=same))


def _explained(file: str, **subject: object) -> Report:
    return replace(
        reports.EXPLAINED,
        origin=Origin("octo/training", "f" * 40, 7, 1),
        subject=replace(reports.SUBJECT, **subject),  # type: ignore[arg-type]
        diagnosis=replace(reports.WHY, file=file, also=()),
    )


def test_the_causes_line_is_a_link_to_it_at_the_commit_that_was_tested() -> None:
    address = (
        f"(<https://ghe.example/octo/training/blob/{reports.SUBJECT.commit}/src/my%20train.py#L41>)"
    )
    text = comment(_explained("src/my train.py"), View(server_url="https://ghe.example"))
    assert f"[`src/my train.py:41`]{address}" in text.splitlines()[0]
    assert f"[`my train.py:41`]{address}" in _rows(text)["Cause"], "a phone is narrow"


@pytest.mark.parametrize(
    ("file", "subject"),
    [
        ("src/train.py", {"commit": None}),
        ("src/train.py", {"uncommitted": ("src/train.py",)}),
        ("/etc/train.py", {}),
        ("../train.py", {}),
        ("a\u202eb.py", {}),
    ],
    ids=["no commit", "uncommitted", "absolute", "upwards", "invisible"],
)
def test_a_line_that_no_commit_has_is_no_link(file: str, subject: dict[str, object]) -> None:
    report = _explained(file, **subject)
    for unlinked in (report, replace(_explained("src/train.py"), origin=None)):
        text = comment(unlinked)
        assert "/blob/0123" not in text and ":41" in _rows(text)["Cause"]


@pytest.mark.parametrize("file", ["a](x)b.py", "a>b.py", "a|b.py", "`a`.py", "a#b?c.py", "<b>.py"])
def test_no_path_ends_its_link_early(file: str) -> None:
    lines = comment(_explained(file)).splitlines()
    (found,) = re.findall(
        r"\]\(<([^>]*)>\)", next(line for line in lines if line.startswith("| **Cause**"))
    )
    blob = r"https://github\.com/octo/training/blob/[0-9a-f]{40}/"
    assert re.fullmatch(blob + r"[A-Za-z0-9%._-]+#L41", found)


def test_the_causes_line_is_shown_with_those_around_it_in_a_block_that_it_cannot_end() -> None:
    assert "```text" not in comment(reports.EXPLAINED)
    excerpt = ((40, "    if a:"), (41, "```torch.Generator().seed()"), (42, "</details>\n| a |"))
    text = comment(replace(reports.EXPLAINED, diagnosis=replace(reports.WHY, excerpt=excerpt)))
    lines = ["````text", "  40 |     if a:", "> 41 | ```torch.Generator().seed()"]
    assert "\n".join(["\n", *lines, "  42 | </details> | a |", "````", "\n"]) in text


def test_the_page_is_named_only_where_there_is_a_run() -> None:
    named = replace(reports.PASS, origin=Origin("octo/training", "f" * 40, 7, 1, "out-a100"))
    link = f"[artifact](<{_RUN}#artifacts>) `out-a100`"
    assert f"The whole report: {link}, `report.html`" in comment(named, View(run_url=_RUN))
    # nobody is led to a page that a fork may have put there
    foreign = comment(named, View(run_url=_RUN, foreign=True))
    assert f"{link}; `repro-gate show report.json --html page.html`" in foreign
    assert "report.html" not in foreign
    assert "report.html" not in comment(named) and "#artifacts" not in comment(named)


def test_our_link_is_a_link_and_cannot_be_ended_early() -> None:
    text = comment(reports.PASS, View(run_url="https://h/a b>(c)<d>\n[x](y)"))
    assert "[workflow run](<https://h/a%20b%3E%28c%29%3Cd%3E%0A%5Bx%5D%28y%29>)" in text
    assert "](<" not in comment(reports.PASS)


def test_what_a_change_weakens_is_seen_without_a_click_and_of_many_the_first() -> None:
    assert "### ⚠️ Weakened checks" in _unfolded(comment(reports.WEAKENED))
    assert "Weakened checks" not in comment(reports.LOCKED)
    many = tuple(WeakenedCheck(f"key.{index}", "less now") for index in range(40))
    base = replace(reports.WEAKENED.base or pytest.fail("it has one"), weakened=many)
    seen = _unfolded(comment(replace(reports.WEAKENED, base=base)))
    assert seen.count("less now") == 5 and "and 35 more, all in the JSON report" in seen


def test_seeds_and_losses_that_are_no_numbers_are_seen() -> None:
    pair = reports.compared(reports.SAME, reports.DIFFERENT, non_finite=((7, "nan"),))
    rows = _rows(comment(replace(reports.FAIL, determinism=pair)))
    assert rows["Diverges at"].endswith("<br>seeds: 1 same, 2 differs")
    assert rows["Loss"] == "not finite: nan at step 7"


@pytest.mark.parametrize(
    "report", [*reports.ALL.values(), reports.hostile(), reports.enormous(tensors=50)]
)
def test_the_table_is_a_table_whatever_stands_in_it_and_the_rest_is_folded(report: Report) -> None:
    text = comment(report)
    _rows(text)
    assert len(_unfolded(text)) < 50_000  # of Markdown: each of a row's texts is clipped
