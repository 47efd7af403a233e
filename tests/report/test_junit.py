"""Claims about the JUnit XML: it keeps to Jenkins' XSD, whatever a report holds, and says what
failed, why and what to do.

`junit-10.xsd` is Jenkins' own, from its xunit plugin (jenkinsci/xunit-plugin, 8c515de2804b), with
its licence (MIT) inside.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro_gate.report.exports import MOST_CASES, junit
from repro_gate.report.model import Reason, Report, View
from tests.support import reports

_XSD = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))
_ILLEGAL = (
    "\x00\x01\x0b\x1b\x7f\x85\ud800\udfff\ufffe\uffff]]><&\"'<![CDATA[ </failure> &amp; "
    "\u202e\u2028"
)


def root_of(report: Report, view: View | None = None) -> ET.Element:
    root = ET.fromstring(junit(report, view or View()).encode())  # a lone surrogate would fail
    _XSD.validate(root)
    return root


def outcome(report: Report, name: str) -> ET.Element:
    (case,) = (case for case in root_of(report).iter("testcase") if case.get("name") == name)
    (found,) = case
    return found


@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), reports.hostile(), reports.hostile(_ILLEGAL)],
    ids=[*reports.ALL, "hostile", "illegal"],
)
def test_every_report_keeps_to_the_schema_and_its_counts_are_those_of_its_cases(
    report: Report,
) -> None:
    root = root_of(report)
    for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        for counted in (*root, root):
            assert counted.get(key) == str(len([*counted.iter(tag)])), (counted, key)
    assert [suite.get("skipped") for suite in root] == [
        str(len([*suite.iter("skipped")])) for suite in root
    ]
    names = [case.get("name") for case in root.iter("testcase")]
    assert len(set(names)) == len(names) and "verdict" in names
    tags = {"pass": "system-out", "fail": "failure", "inconclusive": "error"}
    assert tags[report.verdict] == outcome(report, "verdict").tag
    assert (root.get("failures") == "0") == (report.verdict != "fail")


def test_the_schema_of_these_tests_refuses_what_is_wrong() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        _XSD.validate(ET.fromstring("<testsuites><testsuite name='x'/></testsuites>"))


@pytest.mark.parametrize(
    ("report", "name", "tag", "words"),
    [
        (reports.EXPLAINED, "determinism/diverged", "failure", "src/train.py:41 drew from the"),
        (reports.FAIL, "data/checksums", "failure", "\nremedy: write the new SHA-256"),
        (reports.FAIL, "code/committed", "system-out", "train.py has uncommitted changes"),
        (reports.FAIL, "env/image-digest", "skipped", "waived until 2027-06-30: bare-metal"),
        (reports.FAIL, "env/lockfile", "system-out", ""),
        (reports.FAIL, "verdict", "failure", "see it again: repro-gate run"),
        (reports.DRIFT, "baseline/drift", "failure", "remedy: "),
        (reports.INCONCLUSIVE, "run/crashed", "error", "crashed at step 3 with exit code 1"),
    ],
)
def test_each_check_and_reason_has_its_element_with_what_was_found_and_what_to_do(
    report: Report, name: str, tag: str, words: str
) -> None:
    found = outcome(report, name)
    assert found.tag == tag and words in (found.text or "")
    if tag != "system-out":
        assert found.get("type") == name and (found.text or "").startswith(found.get("message", ""))


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(), max_size=60))
@example("]]></failure><testcase name='x'/>\x00\ud800")
def test_no_name_breaks_the_document_and_what_would_be_markup_is_text(text: str) -> None:
    root = root_of(reports.hostile(text))
    assert "\n" not in "".join(case.get("name") or "" for case in root.iter("testcase"))
    report = replace(reports.PASS, verdict="fail", reasons=(Reason("run/crashed", text),))
    if "</failure>" in text:
        said = outcome(report, "run/crashed").text or ""
        assert "]]></failure><testcase name='x'/>\\x00\\ud800" in said
    assert "]]>" not in junit(report)


def test_a_report_of_any_size_gives_a_bounded_document_without_a_failure_cut() -> None:
    long, last = "&" * 20_000, MOST_CASES + 48
    check = reports.check("data/x", "warn", long, ("&" * 10_000,) * 500, long)
    checks = [replace(check, id=f"data/{number}") for number in range(last)]
    checks.append(replace(check, id=f"data/{last}", status="fail"))
    reasons = tuple(Reason("data/x", long) for _ in range(1_000))
    text = junit(replace(reports.FAIL, checklist=tuple(checks), reasons=reasons))
    assert len(text) < 10_000_000 and f'name="data/{last}"' in text
    assert "<system-out>and 51 more in report.json</system-out>" in text
