"""Claims about `report.checklist`: everything that was checked is said, the worst first, with
evidence and remedy, and counted at the end.

The golden file is refreshed as those of `test_terminal` are.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult, EvidenceLine
from repro_gate.report import document as report_document
from repro_gate.report.model import View
from repro_gate.report.terminal import checklist_json, render_checklist
from tests.support import reports

_GOLDEN = Path(__file__).parent / "golden" / "checklist.txt"
_RESULTS = (
    reports.check("code/committed", "pass", "commit 0123456789ab", ("repro.yml",)),
    reports.check("code/license", "skip", "nothing to look at"),
    reports.check(
        "code/submodules", "waived", "libs/ops is not there: waived, vendored", ("libs/ops",)
    ),
    replace(
        reports.CHECKLIST[0],
        id="code/tree-clean",
        message="2 files have changes",
        evidence=(EvidenceLine("train.py"), EvidenceLine("model.py")),
    ),
    reports.check(
        "code/workflow-pins",
        "fail",
        "7 actions are not pinned",
        tuple(f"ci.yml:{n}" for n in range(7)),
        "pin each by commit",
    ),
    reports.CHECKLIST[1],
)
_NEED_TRAINING = ("code/opened-files", "hardware/device", "hardware/same-model")


def _shown(
    results: tuple[CheckResult, ...],
    need_training: tuple[str, ...] = (),
    width: int = 80,
    encoding: str = "utf-8",
) -> str:
    text = render_checklist(results, need_training, View(width=width, encoding=encoding))
    return text.encode(encoding).decode(encoding)


def _hostile(text: str) -> tuple[CheckResult, ...]:
    found = reports.check(text, "fail", text, (text, text), text)
    return tuple(replace(found, category="code", status=status) for status in STATUSES)


def test_the_checklist_reads_as_the_golden_file() -> None:
    lines = _shown(_RESULTS, _NEED_TRAINING).splitlines()
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        _GOLDEN.write_text(text, encoding="utf-8")
    assert text == _GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_last_line_counts_and_is_one_line_at_any_width(width: int) -> None:
    last = _shown(_RESULTS, _NEED_TRAINING, width).splitlines()[-1]
    assert last.startswith("checklist: 1 failed, ") and "3 need training" in last
    assert "1 needs training" in _shown(_RESULTS[:1], ("env/cuda",), width).splitlines()[-1]
    assert _shown((), (), width).splitlines()[-1] == "checklist: 0 passed"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_without_unicode_gets_everything_too(encoding: str) -> None:
    text = _shown(_hostile("漢字 😀 é"), encoding=encoding)
    assert "\\u6f22" in text and "checklist: 1 failed" in text


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_hostile_texts_reach_the_terminal_as_text_only_and_machines_as_json(name: str) -> None:
    results = _hostile(name + reports.HOSTILE)
    for char in _shown(results).replace("\n", ""):
        assert char.isprintable(), f"U+{ord(char):04X}"
    document = json.loads(checklist_json(results, name))
    assert document["counts"] == dict.fromkeys(STATUSES, 1)


def test_the_json_names_its_format_and_holds_every_result_in_the_form_of_report_json() -> None:
    many = (
        replace(_RESULTS[0], evidence=tuple(EvidenceLine(str(number)) for number in range(500))),
        *_RESULTS[1:],
    )
    found = json.loads(checklist_json(many, "repro.yml", _NEED_TRAINING))
    assert (found["schema"], found["spec"]) == ("repro-gate/checklist/v1", "repro.yml")
    assert found["tool_version"] == __version__
    assert found["counts"] == {"pass": 2, "warn": 1, "fail": 1, "skip": 1, "waived": 1}
    assert found["coverage"][0] == {"category": "code", "passed": 1, "made": 4}
    assert found["need_training"] == list(_NEED_TRAINING)
    whole = report_document.to_json(replace(reports.PASS, checklist=many))
    assert found["checklist"] == whole["checklist"]
