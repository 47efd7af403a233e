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
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.model import NoiseFloor
from repro_gate.report.junit import MOST, render
from repro_gate.report.model import Reason, Report, SeedResult, View
from repro_gate.spec.model import Tolerance
from tests.support import reports

_XSD = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))
_ILLEGAL = (
    "\x00\x01\x0b\x1b\x7f\x85\ud800\udfff\ufffe\uffff]]><&\"'<![CDATA[ </failure> &amp; "
    "\u202e\u2028"
)


def _root(report: Report, view: View | None = None) -> ET.Element:
    text = render(report, view or View())
    root = ET.fromstring(text.encode("utf-8"))  # a lone surrogate would not encode
    _XSD.validate(root)
    return root


def _case(report: Report, name: str) -> ET.Element:
    (found,) = [case for case in _root(report).iter("testcase") if case.get("name") == name]
    return found


def _outcome(case: ET.Element) -> str:
    (child,) = case
    return child.tag


@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), reports.hostile(), reports.hostile(_ILLEGAL)],
    ids=[*reports.ALL, "hostile", "illegal"],
)
def test_every_report_keeps_to_the_schema_and_its_counts_are_those_of_its_cases(
    report: Report,
) -> None:
    root = _root(report)
    assert [suite.get("name") for suite in root] == [
        "repro-gate",
        *(f"repro-gate.{category}" for category in CATEGORIES),
    ]
    for suite in [*root, root]:
        cases = list(suite.iter("testcase"))
        assert suite.get("tests") == str(len(cases)) and suite.get("name")
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if suite is not root or key != "skipped":
                assert suite.get(key) == str(sum(case.find(tag) is not None for case in cases)), (
                    suite.get("name"),
                    key,
                )


def test_the_schema_of_these_tests_refuses_what_is_wrong() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        _XSD.validate(
            ET.fromstring("<testsuites><testsuite name='x'><testcase/></testsuite></testsuites>")
        )


def test_a_pass_fails_nothing_and_a_failure_fails_the_verdict() -> None:
    assert [_root(reports.PASS).get(key) for key in ("failures", "errors")] == ["0", "0"]
    assert _outcome(_case(reports.PASS, "verdict")) == "system-out"
    assert _outcome(_case(reports.FAIL, "verdict")) == "failure"


def test_a_divergence_says_where_why_and_what_to_do_with_its_evidence() -> None:
    failure = _case(reports.EXPLAINED, "determinism, seed 42")[0]
    assert failure.tag == "failure" and failure.get("type") == "determinism/diverged"
    assert (
        failure.get("message")
        == "two runs with seed 42 diverge at step 3 (gradient of blocks.3.attn.weight)"
    )
    text = failure.text or ""
    assert text.startswith(failure.get("message") or "-")
    assert (
        "cause: torch.Generator().seed() in src/train.py:41 drew from the operating system "
        "(unseeded-rng)" in text
    )
    assert "Confirmed: with that draw held fixed" in text
    assert "evidence: torch.Generator.seed gave other answers in the two runs" in text
    assert (
        "remedy: give the generator a seed of its own: `generator.manual_seed(seed)` "
        f"({DOCS_URL}/causes/unseeded-rng.md)" in text
    )
    assert text.endswith("see it again: repro-gate run repro.yml --seed 42 --steps 50")


def test_a_divergence_without_a_diagnosis_says_where_to_look() -> None:
    text = _case(reports.FAIL, "determinism, seed 42")[0].text or ""
    assert (
        "cause:" not in text
        and f"remedy: look for an unseeded random source or a nondeterministic op there ({DOCS_URL}"
        in text
    )


def test_each_status_of_a_check_has_its_element() -> None:
    failed = _case(reports.FAIL, "data/checksums")[0]
    assert (failed.tag, failed.get("message")) == (
        "failure",
        "data/train.bin is not the declared file",
    )
    assert (
        failed.text is not None
        and "evidence: data/train.bin\nremedy: write the new SHA-256 into repro.yml" in failed.text
    )
    assert failed.text.endswith(f"page: {DOCS_URL}/checks/data/checksums.md")
    warned = _case(reports.FAIL, "code/committed")[0]
    assert warned.tag == "system-out" and (warned.text or "").startswith(
        "warn: train.py has uncommitted changes\nevidence: train.py"
    )
    waived = _case(reports.FAIL, "env/image-digest")[0]
    assert (waived.tag, waived.get("type"), waived.get("message")) == (
        "skipped",
        "waived",
        "waived until 2027-06-30: bare-metal runner",
    )
    assert _outcome(_case(reports.FAIL, "env/lockfile")) == "system-out"
    skipped = CheckResult(
        id="data/batches", category="data", status="skip", message="no evaluation data"
    )
    assert _outcome(_case(replace(reports.PASS, checklist=(skipped,)), "data/batches")) == "skipped"


def test_what_could_not_be_answered_is_an_error_and_not_a_failure() -> None:
    root = _root(reports.INCONCLUSIVE)
    assert [root.get(key) for key in ("failures", "errors")] == ["0", "1"]
    error = _case(reports.INCONCLUSIVE, "verdict")[0]
    assert (
        error.tag == "error"
        and "run/crashed: deterministic-1 crashed at step 3 with exit code 1." in (error.text or "")
    )
    assert _outcome(_case(reports.INCONCLUSIVE, "determinism")) == "skipped"


def test_each_seed_is_a_case_and_only_the_one_that_diverged_fails() -> None:
    report = replace(
        reports.FAIL, comparisons=(SeedResult(1, reports.SAME, 3), SeedResult(2, reports.DIFFERENT))
    )
    assert (
        _case(report, "determinism, seed 1")[0].text or ""
    ) == "bitwise identical: 3 runs, 50 steps, 202 tensors"
    assert [_outcome(_case(report, f"determinism, seed {seed}")) for seed in (1, 2)] == [
        "system-out",
        "failure",
    ]


def test_a_seed_within_the_tolerance_passes_also_where_another_fails() -> None:
    note = Reason(
        "determinism/within-tolerance",
        "seed 1: the runs are not bitwise identical, but within the tolerance",
    )
    both = (SeedResult(1, reports.DIFFERENT), SeedResult(2, reports.DIFFERENT))
    report = replace(reports.FAIL, comparisons=both, tolerance=Tolerance(1e-6, 1e-5), notes=(note,))
    assert [_outcome(_case(report, f"determinism, seed {seed}")) for seed in (1, 2)] == [
        "system-out",
        "failure",
    ]
    assert _outcome(_case(reports.TOLERATED, "determinism, seed 42")) == "system-out"


def test_cost_and_baseline_fail_by_their_reasons_and_are_skipped_where_nobody_looked() -> None:
    assert "12.4% slower with the flags" in (_case(reports.PASS, "cost")[0].text or "")
    assert [
        _outcome(_case(replace(reports.PASS, cost=None), name)) for name in ("cost", "baseline")
    ] == ["skipped", "skipped"]
    over = Reason(
        "cost/over-budget",
        "determinism costs +12.4 %, 10 % is allowed",
        "find the flag that costs most",
    )
    failed = _case(replace(reports.PASS, verdict="fail", reasons=(over,)), "cost")[0]
    assert (failed.tag, failed.get("type")) == (
        "failure",
        "cost/over-budget",
    ) and "remedy: find the flag" in (failed.text or "")
    unmeasured = replace(
        reports.PASS,
        verdict="inconclusive",
        reasons=(Reason("cost/not-measured", "too few steps"),),
        cost=None,
    )
    assert _outcome(_case(unmeasured, "cost")) == "error"
    assert _outcome(_case(reports.LOCKED, "baseline")) == "system-out"
    assert _case(reports.DRIFT, "baseline")[0].get("type") == "baseline/drift"
    assert _outcome(_case(reports.CHANGED, "against")) == "system-out"


def test_what_was_gated_and_the_way_to_the_run_are_properties() -> None:
    suite = _root(reports.LOCKED, View(run_url="https://github.com/o/r/actions/runs/1"))[0]
    found = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert found["spec"] == "repro.yml" and found["config-hash"] == reports.ADDRESS.config_hash
    assert found["run"] == "https://github.com/o/r/actions/runs/1" and "run" not in {
        i.get("name") for i in _root(reports.PASS).iter("property")
    }
    assert suite.get("time") == "64.200"


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(), max_size=60))
def test_no_name_breaks_the_document(text: str) -> None:
    root = _root(reports.hostile(text))
    assert "\n" not in "".join(case.get("name") or "" for case in root.iter("testcase"))


def test_what_would_be_markup_is_text() -> None:
    name = "]]></failure><testcase name='x'/>\x00\ud800"
    report = replace(reports.PASS, verdict="fail", reasons=(Reason("run/crashed", name),))
    text = _case(report, "verdict")[0].text or ""
    assert "]]></failure><testcase name='x'/>\\x00\\ud800" in text
    assert "]]>" not in render(report)


def test_a_report_of_any_size_gives_a_document_of_bounded_size() -> None:
    lines = tuple("&" * 10_000 for _ in range(500))
    checks = tuple(
        CheckResult(
            id=f"data/{number}",
            category="data",
            status="fail",
            message="&" * 20_000,
            evidence=lines,
            remedy="&" * 20_000,
        )
        for number in range(MOST + 50)
    )
    text = render(
        replace(
            reports.FAIL,
            checklist=checks,
            reasons=tuple(Reason("data/x", "&" * 20_000) for _ in range(1_000)),
        )
    )
    assert len(text) < 10_000_000
    assert "<system-out>and 50 more in report.json</system-out>" in text


def test_a_time_that_is_no_number_is_left_at_zero() -> None:
    floor = NoiseFloor(
        identical=True,
        loss_gap=float("nan"),
        weight_l2=None,
        weight_relative_l2=None,
        first_step=None,
    )
    assert (
        _root(replace(reports.PASS, seconds=float("inf"), noise_floor=floor))[0].get("time")
        == "0.000"
    )


def test_what_failed_is_never_cut() -> None:
    seeds = tuple(SeedResult(seed, reports.SAME) for seed in range(300))
    report = replace(reports.FAIL, comparisons=(*seeds, SeedResult(300, reports.DIFFERENT)))
    failed = [
        case.get("name")
        for case in _root(report).iter("testcase")
        if case.find("failure") is not None
    ]
    assert any("300" in str(name) for name in failed), failed
