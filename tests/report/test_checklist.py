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
from repro_gate.checks.interface import STATUSES, CheckResult
from repro_gate.report import checklist
from repro_gate.report import document as report_document
from repro_gate.report.model import View
from tests.support import reports

_GOLDEN = Path(__file__).parent / "golden" / "checklist.txt"
_RESULTS = (
    CheckResult(
        id="code/committed",
        category="code",
        status="pass",
        message="commit 0123456789ab",
        evidence=("repro.yml",),
    ),
    CheckResult(id="code/license", category="code", status="skip", message="nothing to look at"),
    CheckResult(
        id="code/submodules",
        category="code",
        status="waived",
        message="libs/ops is not there: waived, vendored",
        evidence=("libs/ops",),
    ),
    CheckResult(
        id="code/tree-clean",
        category="code",
        status="warn",
        message="2 files have changes",
        evidence=("train.py", "model.py"),
        remedy="commit them, then run again",
    ),
    CheckResult(
        id="code/workflow-pins",
        category="code",
        status="fail",
        message="7 actions are not pinned",
        evidence=tuple(f"ci.yml:{n}" for n in range(7)),
        remedy="pin each by commit",
    ),
    CheckResult(
        id="data/checksums",
        category="data",
        status="pass",
        message="1 of 1 files have the declared SHA-256",
    ),
)
_NEED_TRAINING = ("code/opened-files", "hardware/device", "hardware/same-model")


def _shown(
    results: tuple[CheckResult, ...],
    need_training: tuple[str, ...] = (),
    width: int = 80,
    encoding: str = "utf-8",
    colour: bool = False,
) -> str:
    text = checklist.render(
        results, need_training, View(width=width, encoding=encoding, colour=colour)
    )
    return text.encode(encoding).decode(encoding)


def _plain(results: tuple[CheckResult, ...], need_training: tuple[str, ...] = ()) -> str:
    return "\n".join(line.rstrip() for line in _shown(results, need_training).splitlines()) + "\n"


def _hostile(text: str) -> tuple[CheckResult, ...]:
    return tuple(
        CheckResult(
            id=text,
            category="code",
            status=status,
            message=text,
            evidence=(text, text),
            remedy=text,
        )
        for status in STATUSES
    )


def test_the_checklist_reads_as_the_golden_file() -> None:
    text = _plain(_RESULTS, _NEED_TRAINING)
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        _GOLDEN.write_text(text, encoding="utf-8")
    assert text == _GOLDEN.read_text(encoding="utf-8")


def test_every_result_has_its_message_evidence_and_what_to_do() -> None:
    text = _plain(_RESULTS)
    for item in _RESULTS:
        assert (
            item.id in text
            and item.message in text
            and (not item.evidence or item.evidence[0] in text)
        )
    assert "Remedy: pin each by commit" in text and "Remedy: commit them" in text
    assert "ci.yml:4" in text and "ci.yml:5" not in text and "and 2 more" in text


@pytest.mark.parametrize(
    ("results", "waiting", "line"),
    [
        (
            _RESULTS,
            _NEED_TRAINING,
            (
                "checklist: 1 failed, 1 warn, 1 waived, 2 passed, 1 skipped, 3 need training "
                "(repro-gate run)"
            ),
        ),
        (_RESULTS[:1], ("env/cuda",), "checklist: 1 passed, 1 needs training (repro-gate run)"),
        ((), (), "checklist: 0 passed"),
    ],
)
def test_the_last_line_counts_and_is_one_line_at_any_width(
    results: tuple[CheckResult, ...], waiting: tuple[str, ...], line: str
) -> None:
    for width in (20, 80, 200):
        assert _shown(results, waiting, width).splitlines()[-1] == line


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
    document = json.loads(checklist.as_json(results, name))
    assert document["counts"] == dict.fromkeys(STATUSES, 1)


def test_the_json_names_its_format_and_holds_every_result() -> None:
    document = json.loads(checklist.as_json(_RESULTS, "repro.yml", _NEED_TRAINING))
    assert (document["schema"], document["spec"]) == ("repro-gate/checklist/v1", "repro.yml")
    assert document["tool_version"] == __version__
    assert document["counts"] == {"pass": 2, "warn": 1, "fail": 1, "skip": 1, "waived": 1}
    assert document["coverage"][0] == {"category": "code", "passed": 1, "made": 4}
    assert [item["id"] for item in document["checklist"]] == [item.id for item in _RESULTS]
    assert document["need_training"] == list(_NEED_TRAINING)


def test_the_results_have_the_form_that_report_json_gives_them() -> None:
    many = (replace(_RESULTS[0], evidence=tuple(map(str, range(500)))), *_RESULTS[1:])
    document = json.loads(checklist.as_json(many, "repro.yml"))
    report_document.report_from(
        report_document.to_json(reports.PASS) | {"checklist": document["checklist"]}
    )
    assert (
        document["checklist"]
        == report_document.to_json(replace(reports.PASS, checklist=many))["checklist"]
    )
