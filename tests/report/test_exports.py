"""Annotations, JUnit XML and SARIF: each keeps to the form that its reader takes, whatever a report
holds, and nothing in it is live. `junit-10.xsd` is Jenkins' own, from its xunit plugin
(jenkinsci/xunit-plugin, 8c515de2804b), with its licence (MIT) inside; SARIF's official schema is
that of `tests/browser/test_code_scanning.py`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.interface import EvidenceLine
from repro_gate.report import exports
from repro_gate.report.exports import (
    MAX_RESULTS,
    MESSAGE,
    MOST_CASES,
    MOST_OF_A_LEVEL,
    command,
    junit,
    sarif,
    workflow_commands,
)
from repro_gate.report.model import Origin, Reason, Report, View
from repro_gate.trace.fields import Location
from tests.report.test_findings import _ENTROPY, _REASON
from tests.support import reports


def command_of(line: str) -> tuple[str, dict[str, str], str]:
    """Name, properties and data of one command line, as the runner takes it apart."""
    found = re.fullmatch(r"::([a-z-]+)(?: ([^\n]*?))?::([^\n\r]*)", line)
    assert found is not None, line
    pairs = [pair.partition("=") for pair in (found[2] or "").split(",") if pair]
    data = {"%0A": "\n", "%0D": "\r", "%3A": ":", "%2C": ",", "%25": "%"}

    def plain(text: str) -> str:
        return re.sub("%(?:0A|0D|3A|2C|25)", lambda code: data[code[0]], text)

    return found[1], {name: plain(value) for name, _, value in pairs}, plain(found[3])


def test_no_text_of_an_annotation_becomes_a_command_or_a_property() -> None:
    for text in (
        "a::b",
        "x\n::set-output name=v::1",
        "x\r::stop-commands::y",
        "%0A::error::",
        "a,line=9,file=/etc/passwd",
        "100%",
        "\u2028::error::",
    ):
        line = command("error", text, text, Location(text, 3))
        name, properties, data = command_of(line)
        assert name == "error" and properties.keys() == {"title", "file", "line"}
        assert properties["line"] == "3"
        assert line.isprintable() and data == "\n".join(
            part.replace("\r", "\\r").replace("\u2028", "\\u2028") for part in text.split("\n")
        )
    assert command("notice", "", "x") == "::notice::x"
    assert command("notice", "x", "") == "::notice title=x::x"


def test_messages_and_documents_are_cut_to_what_their_readers_keep() -> None:
    for char in ("x", "%", "\n", "\u202e", "\U0001f600", "é"):
        data = command_of(command("error", "t", char * 5000 + "end"))[2]
        assert (
            len(data.encode("utf-16-le")) // 2 <= MESSAGE and "…" in data and data.endswith("end")
        )
    long, last = "&" * 20_000, MOST_CASES + 48
    check = reports.check("data/x", "warn", long, ("&" * 10_000,) * 500, long)
    checks = [replace(check, id=f"data/{number}") for number in range(last)]
    checks.append(replace(check, id=f"data/{last}", status="fail"))
    reasons = tuple(Reason("data/x", long) for _ in range(1_000))
    text = junit(replace(reports.FAIL, checklist=tuple(checks), reasons=reasons))
    assert len(text) < 10_000_000 and f'name="data/{last}"' in text
    assert "<system-out>and 51 more in report.json</system-out>" in text


def test_the_last_of_too_many_says_how_many_and_a_preflight_note_is_a_notice() -> None:
    found = enumerate(["warn"] * 11 + ["fail"])
    checks = tuple(reports.check(f"code/c-{number}", level) for number, level in found)
    lines = workflow_commands(replace(reports.PASS, checklist=checks, notes=())).splitlines()
    assert len(lines) == 1 + MOST_OF_A_LEVEL and lines[0].startswith("::error")
    assert "c-7," in lines[MOST_OF_A_LEVEL - 1]
    assert lines[-1].startswith("::warning") and "3 more warnings" in lines[-1]
    report = replace(
        reports.PASS,
        checklist=(),
        notes=(Reason("preflight/disk", "little is left", "free some"), Reason("other/x", "y")),
    )
    assert (
        workflow_commands(report) == "::notice title=preflight/disk::little is left%0Afree some\n"
    )


_XSD = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))
_ILLEGAL = (
    "\x00\x01\x0b\x1b\x7f\x85\ud800\udfff\ufffe\uffff]]><&\"'<![CDATA[ </failure> &amp; "
    "\u202e\u2028"
)


def root_of(report: Report) -> ET.Element:
    root = ET.fromstring(junit(report).encode())  # a lone surrogate would fail
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
def test_every_report_keeps_to_the_schema_and_counts_its_cases(report: Report) -> None:
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
    tags |= {"recorded": "skipped"}
    assert tags[report.verdict] == outcome(report, "verdict").tag
    assert (root.get("failures") == "0") == (report.verdict != "fail")


def test_each_check_and_reason_has_its_element_and_the_schema_refuses_what_is_wrong() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        _XSD.validate(ET.fromstring("<testsuites><testsuite name='x'/></testsuites>"))
    for report, name, tag, words in (
        (reports.EXPLAINED, "determinism/diverged", "failure", "src/train.py:41 drew from the"),
        (reports.FAIL, "data/checksums", "failure", "\nremedy: write the new SHA-256"),
        (reports.FAIL, "code/committed", "system-out", "train.py has uncommitted changes"),
        (reports.FAIL, "env/image-digest", "skipped", "waived until 2027-06-30: bare-metal"),
        (reports.FAIL, "env/lockfile", "system-out", "requirements.lock pins 41 packages"),
        (reports.FAIL, "verdict", "failure", "see it again: repro-gate run"),
        (reports.DRIFT, "baseline/drift", "failure", "remedy: "),
        (reports.INCONCLUSIVE, "run/crashed", "error", "crashed at step 3 with exit code 1"),
    ):
        found = outcome(report, name)
        assert found.tag == tag and words in (found.text or "")
        if tag != "system-out":
            assert found.get("type") == name and (found.text or "").startswith(
                found.get("message", "")
            )


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


_ORIGIN = Origin("octo/training", "c" * 40, 17, 2, "gpu a")
_REASONS = (*reports.FAIL.reasons[:1], _REASON)
_FAIL = replace(reports.FAIL, checklist=(_ENTROPY,), reasons=_REASONS, origin=_ORIGIN)


def _run(report: Report, **arguments: Any) -> dict[str, Any]:
    document = json.loads(sarif(report, View(**arguments)))
    assert document["version"] == "2.1.0" and len(document["runs"]) == 1
    run: dict[str, Any] = document["runs"][0]
    return run


def _place(result: dict[str, Any]) -> tuple[str, int]:
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


def test_each_finding_is_a_result_on_its_line_in_the_category_of_its_job() -> None:
    results = _run(_FAIL)["results"]
    assert [(item["ruleId"], item["level"], _place(item)) for item in results] == [
        ("determinism/diverged", "error", ("repro.yml", 1)),
        ("random-state/os-entropy", "error", ("src/train.py", 41)),
        ("random-state/os-entropy", "error", ("src/data.py", 7)),
    ]
    (result,) = _run(replace(reports.EXPLAINED, checklist=(), reasons=_REASONS[:1]))["results"]
    assert _place(result) == ("src/train.py", 41)
    run = _run(_FAIL, server_url="https://ghe.example")
    assert run["automationDetails"]["id"] == "repro-gate/repro.yml/gpu%20a/17-2"
    (source,) = run["versionControlProvenance"]
    assert source["repositoryUri"] == "https://ghe.example/octo/training"
    assert source["revisionId"] == "c" * 40
    assert "versionControlProvenance" not in _run(reports.FAIL)


def test_a_pass_under_a_condition_has_its_line_and_any_other_pass_has_none() -> None:
    (result,) = _run(reports.CONDITIONAL)["results"]
    found = (result["ruleId"], result["level"], _place(result))
    assert found == ("random-state/robust", "warning", ("src/data.py", 6))
    assert "file=src/data.py,line=6" in workflow_commands(reports.CONDITIONAL)
    text = outcome(reports.CONDITIONAL, "verdict").text or ""
    assert text.startswith("pass only with PYTHONHASHSEED=42: without it the runs differ")
    assert not _run(replace(reports.CONDITIONAL, robust=True))["results"]


@pytest.mark.parametrize("name", [*reports.ALL, "hostile"])
def test_every_result_has_what_github_requires(name: str) -> None:
    report = replace(reports.ALL.get(name) or reports.hostile(), origin=_ORIGIN)
    run = _run(report)
    rules = run["tool"]["driver"]["rules"]
    assert rules and (run["results"] or report.verdict != "fail")
    assert run["tool"]["driver"]["name"] and len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert rule["fullDescription"]["text"] and rule["help"]["text"] and rule["help"]["markdown"]
        assert len(rule["name"]) <= 255 and len(rule["properties"]["tags"]) <= 10
    for item in run["results"]:
        assert rules[item["ruleIndex"]]["id"] == item["ruleId"] and item["message"]["text"]
        assert item["level"] in ("error", "warning")
        assert item["partialFingerprints"]["primaryLocationLineHash"]
        assert len(item["locations"]) == 1 and _place(item)[0] and _place(item)[1] >= 1


def test_every_check_is_a_rule_and_a_pass_has_no_results() -> None:
    rules = {rule["id"]: rule for rule in _run(reports.PASS)["tool"]["driver"]["rules"]}
    for check in ALL:
        assert rules[check.id]["help"]["markdown"].startswith(f"# {check.id}")
        assert rules[check.id]["helpUri"] == f"{DOCS_URL}/checks/{check.id}.md"
    assert list(rules) == [rule["id"] for rule in _run(_FAIL)["tool"]["driver"]["rules"]]
    check = replace(_ENTROPY, evidence=tuple(_seen("a.py", line, "x") for line in range(1, 11)))
    checks = tuple(replace(check, id=f"code/c-{index}") for index in range(900))
    assert len(_run(replace(_FAIL, checklist=checks, reasons=()))["results"]) == MAX_RESULTS
    for report in (reports.PASS, reports.WEAKENED, reports.TOLERATED):
        assert _run(report)["results"] == []
    # what compared nothing closes no alert that a gate run opened
    for report in (reports.INCONCLUSIVE, reports.RECORDED):
        assert _run(report)["invocations"] == [{"executionSuccessful": False}]
    assert _run(reports.FAIL)["invocations"] == [{"executionSuccessful": True}]


def _seen(file: str, line: int, text: str) -> EvidenceLine:
    return EvidenceLine(text, Location(file, line))


def _prints(report: Report) -> list[str]:
    results = _run(report)["results"]
    return [item["partialFingerprints"]["primaryLocationLineHash"] for item in results]


def test_an_alert_is_the_same_one_if_only_lines_steps_and_figures_moved() -> None:
    moved = replace(
        _ENTROPY,
        evidence=(
            _seen("src/train.py", 52, "rng = default_rng()"),
            _seen("src/data.py", 8, "random.Random()"),
        ),
        message="said otherwise",
    )
    later = (Reason("determinism/diverged", "two runs with seed 42 diverge at step 9"), _REASON)
    assert _prints(replace(_FAIL, checklist=(moved,), reasons=later, seconds=1.0)) == _prints(_FAIL)

    def of(*evidence: EvidenceLine, name: str = "random-state/os-entropy") -> list[str]:
        check = reports.check(name, evidence=evidence)
        return _prints(replace(_FAIL, checklist=(check,), reasons=()))

    one = _seen("a.py", 1, "x()")
    first, *others = of(one), of(_seen("b.py", 1, "x()")), of(_seen("a.py", 1, "y()"))
    others.append(of(one, name="random-state/flags"))
    assert len({tuple(prints) for prints in (first, *others)}) == 4
    assert len({*of(one, _seen("a.py", 9, "x()"))}) == 2


def test_names_are_plain_text_paths_are_quoted_and_an_id_that_is_none_of_ours_is_no_rule() -> None:
    message = "see [here](https://evil.example) and {0}\u202e\n::error::x"
    text = _run(replace(_FAIL, reasons=(Reason("a/b", message),)))["results"][0]["message"]["text"]
    assert text == "see [here] (https://evil.example) and { 0 }\\u202e\\n::error::x"
    run = _run(replace(_FAIL, checklist=(), reasons=(Reason("<b>", "x"), Reason("made/up", "y"))))
    assert [item["ruleId"] for item in run["results"]] == ["report/other", "made/up"]
    check = replace(_ENTROPY, evidence=(_seen("a b#c?.py", 3, "x"),))
    (result,) = _run(replace(_FAIL, checklist=(check,), reasons=()))["results"]
    assert _place(result) == ("a%20b%23c%3F.py", 3)
    outside = replace(reports.SUBJECT, spec="/etc/passwd")
    run = _run(replace(_FAIL, subject=outside, checklist=()))
    assert "passwd" not in json.dumps(run) and _place(run["results"][0])[0] == "repro.yml"


@pytest.mark.parametrize(
    ("report", "message", "colour"),
    [
        (reports.PASS, "bitwise identical", "brightgreen"),
        (reports.FAIL, "fail", "red"),
        (reports.INCONCLUSIVE, "inconclusive", "lightgrey"),
    ],
)
def test_the_badge_is_what_shields_io_reads(report: Report, message: str, colour: str) -> None:
    expected = {"schemaVersion": 1, "label": "repro-gate", "message": message, "color": colour}
    assert json.loads(exports.badge(report)) == expected
