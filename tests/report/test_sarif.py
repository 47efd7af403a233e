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
from repro_gate.checks.interface import CheckResult
from repro_gate.report.exports import MAX_RESULTS, sarif
from repro_gate.report.model import Origin, Reason, Report, View
from tests.report.test_findings import _ENTROPY, _REASON
from tests.support import reports

_ORIGIN = Origin("octo/training", "c" * 40, 17, 2, "gpu a")
_FAIL = replace(
    reports.FAIL,
    checklist=(_ENTROPY,),
    reasons=(*reports.FAIL.reasons[:1], _REASON),
    origin=_ORIGIN,
)


def _run(report: Report, **arguments: Any) -> dict[str, Any]:
    document = json.loads(sarif(report, View(**arguments)))
    assert document["version"] == "2.1.0" and len(document["runs"]) == 1
    run: dict[str, Any] = document["runs"][0]
    return run


def test_each_finding_is_a_result_on_its_line() -> None:
    results = _run(_FAIL)["results"]
    assert [(item["ruleId"], item["level"]) for item in results] == [
        ("determinism/diverged", "error"),
        ("random-state/os-entropy", "error"),
        ("random-state/os-entropy", "error"),
    ]
    places = [item["locations"][0]["physicalLocation"] for item in results]
    assert [
        (place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places
    ] == [
        ("repro.yml", 1),
        ("src/train.py", 41),
        ("src/data.py", 7),
    ]


def test_a_divergence_is_a_result_on_the_line_of_its_cause_with_the_way_to_its_page() -> None:
    remedy = f"seed it ({DOCS_URL}/causes/unseeded-rng.md)"
    report = replace(
        reports.EXPLAINED, checklist=(), reasons=(replace(reports.FAIL.reasons[0], remedy=remedy),)
    )
    (result,) = _run(report)["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"], result["level"]) == (
        "src/train.py",
        41,
        "error",
    )
    assert (
        result["message"]["text"]
        .splitlines()[1]
        .startswith("torch.Generator().seed() in src/train.py:41 drew")
    )
    assert result["message"]["text"].endswith(f"Remedy: {remedy}")


@pytest.mark.parametrize("report", [reports.PASS, reports.WEAKENED, reports.TOLERATED])
def test_a_pass_has_an_empty_list_of_results(report: Report) -> None:
    assert _run(report)["results"] == []


@pytest.mark.parametrize("name", [*reports.ALL, "hostile"])
def test_every_result_has_what_github_requires(name: str) -> None:
    run = _run(replace(reports.ALL.get(name) or reports.hostile(), origin=_ORIGIN))
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] and len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        texts = (
            rule["shortDescription"]["text"],
            rule["fullDescription"]["text"],
            rule["help"]["text"],
            rule["help"]["markdown"],
        )
        assert (
            all(texts)
            and len(texts[0]) <= 1024
            and len(rule["name"]) <= 255
            and len(rule["properties"]["tags"]) <= 10
        )
    for item in run["results"]:
        assert (
            rules[item["ruleIndex"]]["id"] == item["ruleId"]
            and item["message"]["text"]
            and item["level"] in ("error", "warning")
        )
        assert item["partialFingerprints"]["primaryLocationLineHash"]
        (location,) = item["locations"]
        assert (
            location["physicalLocation"]["artifactLocation"]["uri"]
            and location["physicalLocation"]["region"]["startLine"] >= 1
        )


def test_every_check_is_a_rule_with_its_page_as_help_whatever_was_found() -> None:
    rules = {rule["id"]: rule for rule in _run(reports.PASS)["tool"]["driver"]["rules"]}
    for check in ALL:
        assert rules[check.id]["help"]["markdown"].startswith(f"# {check.id}")
        assert rules[check.id]["helpUri"] == f"{DOCS_URL}/checks/{check.id}.md"
    assert list(rules) == [rule["id"] for rule in _run(_FAIL)["tool"]["driver"]["rules"]]


def _prints(report: Report) -> list[str]:
    return [
        item["partialFingerprints"]["primaryLocationLineHash"] for item in _run(report)["results"]
    ]


def test_an_alert_is_the_same_one_where_only_lines_steps_and_figures_moved() -> None:
    moved = replace(
        _ENTROPY,
        evidence=("src/train.py:52: rng = default_rng()", "src/data.py:8: random.Random()"),
        message="said otherwise",
    )
    later = (Reason("determinism/diverged", "two runs with seed 42 diverge at step 9"), _REASON)
    assert _prints(replace(_FAIL, checklist=(moved,), reasons=later, seconds=1.0)) == _prints(_FAIL)


def test_another_file_another_line_of_code_and_another_rule_are_other_alerts() -> None:
    def of(evidence: str, identifier: str = "random-state/os-entropy") -> list[str]:
        check = CheckResult(
            id=identifier, category="random-state", status="fail", message="m", evidence=(evidence,)
        )
        return _prints(replace(_FAIL, checklist=(check,), reasons=()))

    found = [
        of("a.py:1: x()"),
        of("b.py:1: x()"),
        of("a.py:1: y()"),
        of("a.py:1: x()", "random-state/flags"),
    ]
    assert len({prints[0] for prints in found}) == 4


def test_the_same_line_twice_is_told_apart() -> None:
    check = replace(_ENTROPY, evidence=("a.py:1: x()", "a.py:9: x()"))
    assert len(set(_prints(replace(_FAIL, checklist=(check,), reasons=())))) == 2


def test_names_are_plain_text_without_links_and_placeholders() -> None:
    message = "see [here](https://evil.example) and {0}\u202e\n::error::x"
    text = _run(replace(_FAIL, reasons=(Reason("a/b", message),)))["results"][0]["message"]["text"]
    assert text == "see [here] (https://evil.example) and { 0 }\\u202e\\n::error::x"


def test_an_id_that_is_none_of_ours_becomes_no_rule() -> None:
    run = _run(replace(_FAIL, checklist=(), reasons=(Reason("<b>", "x"), Reason("made/up", "y"))))
    assert [item["ruleId"] for item in run["results"]] == ["report/other", "made/up"]


def test_paths_are_relative_addresses_with_what_is_special_quoted() -> None:
    check = replace(_ENTROPY, evidence=("a b#c?.py:3: x",))
    place = _run(replace(_FAIL, checklist=(check,), reasons=()))["results"][0]["locations"][0][
        "physicalLocation"
    ]
    assert place["artifactLocation"]["uri"] == "a%20b%23c%3F.py"


def test_a_spec_that_is_no_path_of_the_repository_is_not_named() -> None:
    run = _run(replace(_FAIL, subject=replace(reports.SUBJECT, spec="/etc/passwd"), checklist=()))
    assert "passwd" not in json.dumps(run)
    assert (
        run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        == "repro.yml"
    )


def test_the_run_and_the_commit_are_named_and_each_job_is_a_category() -> None:
    run = _run(_FAIL, server_url="https://ghe.example")
    assert run["automationDetails"]["id"] == "repro-gate/repro.yml/gpu%20a/17-2"
    (source,) = run["versionControlProvenance"]
    assert (source["repositoryUri"], source["revisionId"]) == (
        "https://ghe.example/octo/training",
        "c" * 40,
    )
    assert "versionControlProvenance" not in _run(reports.FAIL)


def test_no_more_results_than_github_shows() -> None:
    checks = tuple(
        replace(
            _ENTROPY,
            id=f"code/c-{index}",
            evidence=tuple(f"a.py:{line}: x" for line in range(1, 11)),
        )
        for index in range(900)
    )
    assert len(_run(replace(_FAIL, checklist=checks, reasons=()))["results"]) == MAX_RESULTS


def test_a_gate_run_without_an_answer_says_that_it_has_none() -> None:
    assert _run(reports.INCONCLUSIVE)["invocations"] == [{"executionSuccessful": False}]
    assert _run(reports.FAIL)["invocations"] == [{"executionSuccessful": True}]
