"""Claims about `report.sarif`: GitHub takes it, an alert is the same alert in the next run, and
nothing in it is live.

That it follows the official schema is compared with Microsoft's copy of it in
`tests/browser/test_code_scanning.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.interface import EvidenceLine
from repro_gate.report.exports import MAX_RESULTS, sarif
from repro_gate.report.model import Origin, Reason, Report, View
from repro_gate.trace.fields import Location
from tests.report.test_findings import _ENTROPY, _REASON
from tests.support import reports

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


def test_each_finding_is_a_result_on_its_line() -> None:
    results = _run(_FAIL)["results"]
    assert [(item["ruleId"], item["level"], _place(item)) for item in results] == [
        ("determinism/diverged", "error", ("repro.yml", 1)),
        ("random-state/os-entropy", "error", ("src/train.py", 41)),
        ("random-state/os-entropy", "error", ("src/data.py", 7)),
    ]
    (result,) = _run(replace(reports.EXPLAINED, checklist=(), reasons=_REASONS[:1]))["results"]
    assert _place(result) == ("src/train.py", 41)


@pytest.mark.parametrize("report", [reports.PASS, reports.WEAKENED, reports.TOLERATED])
def test_a_pass_has_an_empty_list_of_results(report: Report) -> None:
    assert _run(report)["results"] == []


@pytest.mark.parametrize("name", [*reports.ALL, "hostile"])
def test_every_result_has_what_github_requires(name: str) -> None:
    run = _run(replace(reports.ALL.get(name) or reports.hostile(), origin=_ORIGIN))
    rules = run["tool"]["driver"]["rules"]
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


def test_every_check_is_a_rule_with_its_page_as_help_whatever_was_found() -> None:
    rules = {rule["id"]: rule for rule in _run(reports.PASS)["tool"]["driver"]["rules"]}
    for check in ALL:
        assert rules[check.id]["help"]["markdown"].startswith(f"# {check.id}")
        assert rules[check.id]["helpUri"] == f"{DOCS_URL}/checks/{check.id}.md"
    assert list(rules) == [rule["id"] for rule in _run(_FAIL)["tool"]["driver"]["rules"]]


def _seen(file: str, line: int, text: str) -> EvidenceLine:
    return EvidenceLine(text, Location(file, line))


def _prints(report: Report) -> list[str]:
    results = _run(report)["results"]
    return [item["partialFingerprints"]["primaryLocationLineHash"] for item in results]


def test_an_alert_is_the_same_one_where_only_lines_steps_and_figures_moved() -> None:
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


def test_another_file_line_of_code_and_rule_are_other_alerts_and_the_same_line_twice_too() -> None:
    def of(*evidence: EvidenceLine, name: str = "random-state/os-entropy") -> list[str]:
        check = reports.check(name, evidence=evidence)
        return _prints(replace(_FAIL, checklist=(check,), reasons=()))

    one = _seen("a.py", 1, "x()")
    first, *others = of(one), of(_seen("b.py", 1, "x()")), of(_seen("a.py", 1, "y()"))
    others.append(of(one, name="random-state/flags"))
    assert len({tuple(prints) for prints in (first, *others)}) == 4
    assert len({*of(one, _seen("a.py", 9, "x()"))}) == 2


def test_names_are_plain_text_without_links_and_placeholders() -> None:
    message = "see [here](https://evil.example) and {0}\u202e\n::error::x"
    text = _run(replace(_FAIL, reasons=(Reason("a/b", message),)))["results"][0]["message"]["text"]
    assert text == "see [here] (https://evil.example) and { 0 }\\u202e\\n::error::x"


def test_an_id_that_is_none_of_ours_becomes_no_rule() -> None:
    run = _run(replace(_FAIL, checklist=(), reasons=(Reason("<b>", "x"), Reason("made/up", "y"))))
    assert [item["ruleId"] for item in run["results"]] == ["report/other", "made/up"]


def test_paths_are_relative_addresses_quoted_and_none_outside_the_checkout_is_named() -> None:
    check = replace(_ENTROPY, evidence=(_seen("a b#c?.py", 3, "x"),))
    (result,) = _run(replace(_FAIL, checklist=(check,), reasons=()))["results"]
    assert _place(result) == ("a%20b%23c%3F.py", 3)
    outside = replace(reports.SUBJECT, spec="/etc/passwd")
    run = _run(replace(_FAIL, subject=outside, checklist=()))
    assert "passwd" not in json.dumps(run) and _place(run["results"][0])[0] == "repro.yml"


def test_the_run_and_the_commit_are_named_and_each_job_is_a_category() -> None:
    run = _run(_FAIL, server_url="https://ghe.example")
    assert run["automationDetails"]["id"] == "repro-gate/repro.yml/gpu%20a/17-2"
    (source,) = run["versionControlProvenance"]
    assert source["repositoryUri"] == "https://ghe.example/octo/training"
    assert source["revisionId"] == "c" * 40
    assert "versionControlProvenance" not in _run(reports.FAIL)


def test_no_more_results_than_github_shows() -> None:
    check = replace(_ENTROPY, evidence=tuple(_seen("a.py", line, "x") for line in range(1, 11)))
    checks = tuple(replace(check, id=f"code/c-{index}") for index in range(900))
    assert len(_run(replace(_FAIL, checklist=checks, reasons=()))["results"]) == MAX_RESULTS


def test_a_gate_run_without_an_answer_says_that_it_has_none() -> None:
    assert _run(reports.INCONCLUSIVE)["invocations"] == [{"executionSuccessful": False}]
    assert _run(reports.FAIL)["invocations"] == [{"executionSuccessful": True}]
