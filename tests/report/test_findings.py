"""What a report finds: errors on the lines that they name, and a cause in words that are ours, with what
came from outside as names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from repro_gate.checks.interface import CheckResult, EvidenceLine
from repro_gate.diagnosis.model import (
    Diagnosis,
    Evidence,
    EvidenceKind,
    Explanation,
    Rate,
    ShownUse,
)
from repro_gate.factors import CAUSES, FACTORS
from repro_gate.report.exports import workflow_commands
from repro_gate.report.findings import (
    LOCATIONS,
    WEAKENED_ID,
    address,
    as_diagnosis,
    background,
    findings,
    inside,
    located,
    why,
)
from repro_gate.report.model import BaseFinding, Origin, Reason, Report, View, WeakenedCheck
from repro_gate.trace.fields import Location
from tests.support import reports

_ENTROPY = CheckResult(
    id="random-state/os-entropy",
    category="random-state",
    status="fail",
    message="the runs diverged, and training code drew from the operating system's entropy",
    evidence=(
        EvidenceLine("rng = default_rng()", Location("src/train.py", 41)),
        EvidenceLine("random.Random()", Location("src/data.py", 7)),
    ),
    remedy="seed it from the run's seed",
)
_REASON = Reason("random-state/os-entropy", "the same, with its evidence", "seed it")
_PLAIN = replace(reports.FAIL, checklist=(), reasons=reports.FAIL.reasons[:1])


def _at(spec: str, report: Report) -> Report:
    return replace(report, subject=replace(report.subject, spec=spec))


def test_a_failed_check_is_an_error_on_each_of_its_lines_up_to_a_bound_and_a_pass_is_none() -> None:
    found = findings(_with(_ENTROPY, reasons=(_REASON,)))
    assert [(item.level, item.location) for item in found] == [
        ("error", Location("src/train.py", 41)),
        ("error", Location("src/data.py", 7)),
    ]
    assert found[0].id == "random-state/os-entropy" and found[0].detail == str(_ENTROPY.evidence[0])
    assert (found[0].message, found[0].remedy) == (_ENTROPY.message, _ENTROPY.remedy)
    quiet = tuple(replace(_ENTROPY, status=status) for status in ("pass", "skip", "waived"))
    assert findings(_with(*quiet)) == findings(replace(reports.PASS, checklist=())) == ()
    many = replace(
        _ENTROPY,
        evidence=tuple(EvidenceLine("x", Location("a.py", line)) for line in range(1, 500)),
    )
    assert len(findings(_with(many))) == LOCATIONS


def _with(*checks: CheckResult, reasons: tuple[Reason, ...] = ()) -> Report:
    return replace(reports.FAIL, checklist=checks, reasons=reasons)


def test_the_divergence_is_one_error_on_the_line_of_its_cause_or_at_the_spec() -> None:
    reasons = (reports.FAIL.reasons[0], _REASON)
    report = replace(reports.EXPLAINED, checklist=(_ENTROPY,), reasons=reasons)
    first, other = workflow_commands(report).splitlines()
    assert "error title=Repro Gate%3A determinism/diverged,file=src/train.py,line=41::" in first
    assert "Confirmed: with that draw held fixed" in first
    assert "error title=Repro Gate%3A random-state/os-entropy,file=src/data.py,line=7::" in other
    (found,) = findings(_PLAIN)
    assert (found.level, found.location, found.id) == ("error", None, "determinism/diverged")
    assert workflow_commands(_at("jobs/repro.yml", _PLAIN)).startswith(
        "::error title=Repro Gate%3A determinism/diverged,file=jobs/repro.yml::"
    )
    for file in ("", "/etc/passwd", "../train.py", "a\x1b.py", "../a.ipynb#cell 1"):
        (found,) = findings(replace(_PLAIN, diagnosis=replace(reports.WHY, file=file)))
        assert (found.id, found.location) == ("determinism/diverged", None)


def test_a_cause_in_a_notebook_stands_at_the_notebook_and_errors_before_what_is_weakened() -> None:
    cause = replace(reports.WHY, file="nb/fit.ipynb#cell 2", line=3)
    other = replace(
        _ENTROPY, evidence=(EvidenceLine("random.Random()", Location("nb/fit.ipynb#cell 4", 1)),)
    )
    report = replace(_PLAIN, diagnosis=cause, checklist=(other,))
    found = findings(report)
    assert [(item.id, item.location) for item in found] == [
        ("determinism/diverged", Location("nb/fit.ipynb")),
        ("random-state/os-entropy", Location("nb/fit.ipynb")),
    ]
    assert "in nb/fit.ipynb, cell 2, line 3 drew from the operating system" in found[0].detail
    origin = Origin(repository="a/b", head_sha="1" * 40, run_id=1, run_attempt=1)
    assert address(replace(report, origin=origin), View(), cause).endswith("/nb/fit.ipynb")
    weakened = (WeakenedCheck("determinism.allow", "more is allowed", Location("repro.yml", 12)),)
    base = BaseFinding("origin/main", reports.COMMIT, "head", weakened)
    warns = replace(_ENTROPY, id="env/lockfile", status="warn", evidence=())
    report = replace(_with(warns, _ENTROPY, reasons=reports.FAIL.reasons[:1]), base=base)
    found = findings(_at("jobs/repro.yml", report))
    assert [(item.level, item.location) for item in found] == [
        ("error", None),
        ("error", Location("src/train.py", 41)),
        ("error", Location("src/data.py", 7)),
        ("warning", Location("jobs/repro.yml", 12)),
        ("warning", None),
    ]
    assert found[3].id == WEAKENED_ID and found[3].message.startswith("determinism.allow: more")


def test_what_a_search_saw_is_worded_and_its_last_word_is_what_was_proven() -> None:
    kinds = get_args(EvidenceKind)
    seen = [Evidence(kind, number=2, step=7, name="{fc}.weight") for kind in kinds]
    found = Explanation(
        causes=(replace(reports.WHY, evidence=("it drew",)), reports.SHELL),
        evidence=(*seen, Evidence("moved", step=6, name="fc.bias")),
        ruled_out=(Evidence("operators", 1, 3), Evidence("factors", name="threads as a whole")),
        pinned=("clock", "entropy", "identity"),
        agreed_steps=6,
        rate=Rate(diverged=2, pairs=3),
    )
    worded = as_diagnosis(found)
    *lines, moved, proof, drew = worded.evidence
    assert len({*lines}) == len(kinds) and not any("{number}" in line for line in lines)
    assert (moved, drew) == ("then the runs diverge only at step 6, in fc.bias", "it drew")
    held = "with that time held fixed and with that draw held fixed and with that answer held fixed"
    assert proof == f"confirmed: {held}, two runs are bitwise identical up to step 5"
    assert worded.ruled_out == (
        "1 operator of step 3: equal, or in one run only",
        "holding fixed threads as a whole does not change it",
    )
    assert (worded.also, worded.rate) == ((reports.SHELL,), found.rate)
    line = ShownUse(factor="clock", call="time()")
    unreduced = replace(reports.WHY, confirmed=False, one_of=(line,), evidence=())
    early = replace(found, causes=(unreduced,), agreed_steps=0, rate=Rate(3, 3), evidence=())
    worded = as_diagnosis(early)
    assert worded.evidence == (
        "seen: with all of them held fixed, two runs are bitwise identical before the first step",
    )
    assert worded.rate is None and as_diagnosis(replace(early, pinned=())).evidence == ()


def test_only_a_file_of_the_checkout_is_a_place() -> None:
    for given, shown in (
        (Location("train.py", 41), Location("train.py", 41)),
        (Location("./my folder/tr ain.py", 3), Location("my folder/tr ain.py", 3)),
        (Location("nb/train.ipynb#cell 2", 3), Location("nb/train.ipynb")),
        (Location("repro.yml"), Location("repro.yml")),
        (Location("", 3), None),
        (Location("/etc/passwd.txt", 3), None),
        (Location("../other/train.py", 3), None),
        (Location("a/../../b.py", 3), None),
        (Location("C:\\x.py", 3), None),
        (Location("tr\u202eain.py", 3), None),
        (Location("tr\nain.py", 3), None),
        (Location("a" * 500, 3), None),
    ):
        assert located(given) == shown
    for path in (
        "",
        ".",
        "..",
        "/repro.yml",
        "../repro.yml",
        "a/../..",
        "a\\b.yml",
        "a\x1b.yml",
        "a" * 500,
    ):
        assert inside(path) is None
        assert "file=" not in workflow_commands(_at(path, _PLAIN))


@pytest.mark.parametrize(
    "report",
    [*reports.ALL.values(), reports.hostile(), reports.enormous(tensors=50)],
    ids=[*reports.ALL, "hostile", "large"],
)
def test_any_report_gives_each_finding_once_and_in_bounds(report: Report) -> None:
    found = findings(report)
    assert {item.level for item in found} <= {"error", "warning"}
    assert len({*found}) == len(found) and (found or report.verdict != "fail")
    lines = workflow_commands(report).splitlines()
    assert bool(lines) is bool(found)
    for line in lines:
        assert line.isprintable() and len(line) < 10_000


_FOUND = reports.WHY


def _said(found: Diagnosis) -> list[str]:
    return ["".join(text for _, text in sentence) for sentence in why(found)]


def test_what_came_from_outside_is_observed_and_never_said_as_our_own_words() -> None:
    found = Diagnosis(
        cause="external-input",
        factor="files",
        call="open(PRICES)",
        file="feed.py",
        line=4,
        observed=True,
        evidence=("observed: in step 1 /srv/prices gave a1 in one run and b2 in the other",),
    )
    cause, seen = _said(found)
    assert cause.startswith("open(PRICES) in feed.py:4 read a file outside the checkout")
    assert seen.startswith("Observed: in step 1 /srv/prices")
    assert "in step 1" not in "".join(text for line in background(found) for _, text in line)
    text = "`x` <b>"
    hostile = replace(
        _FOUND,
        call=text,
        file=text,
        message=text,
        evidence=(text,),
        ruled_out=(text,),
        also=(replace(_FOUND, call=text),),
        one_of=(ShownUse(factor="entropy", call=text, file=text, line=1),),
    )
    shown = [*background(hostile), *why(hostile)]
    shown += [*why(replace(hostile, factor=None)), *why(replace(hostile, cause="unknown"))]
    own = [role for sentence in shown for role, words in sentence if text in words]
    assert own and set(own) <= {"name", "message"}


def test_a_cause_without_its_factor_or_one_of_many_lines_is_told_in_its_own_words() -> None:
    for change in (
        {"factor": None, "op": "aten.index_put_", "cause": "nondeterministic-op"},
        {"factor": "moon"},
        {"factor": "clock"},  # not the cause's factor
        {"factor": "threads", "cause": "thread-race", "call": "results.get()"},
    ):
        message = "results.get() in src/train.py:41 took results in the order in which they came"
        found = replace(_FOUND, message=message, also=(), rate=None, **change)
        assert _said(found)[0] == f"{message} ({found.cause})"
    limit = {"factor": "clock", "cause": "wall-clock", "call": "job.result(timeout=1)"}
    message = "job.result(timeout=1) in src/train.py:41 ended work after a time"
    found = replace(_FOUND, message=message, also=(), rate=None, **limit)
    assert _said(found)[0] == f"{message} (wall-clock)"
    cause, lines, seen = _said(_LEFT)
    assert cause.startswith("Likely, not proven: env.reset() in train.py:6")
    assert "train.py:6 env.reset() (entropy), train.py:1 import gym (clock)" in lines
    assert seen.startswith("Seen: ") and "Confirmed" not in cause + lines + seen
    shown = ["".join(text for _, text in line) for line in background(_LEFT)]
    assert shown and not [text for text in shown if "seen:" in text]
    many = _said(replace(_LEFT, one_of=_LEFT.one_of * 50))[1]
    assert "One of these 100 lines" in many and many.endswith("and 90 more")
    nowhere = (ShownUse(factor="memory", call=""),) * 2
    whole = replace(_LEFT, cause="unknown", message="not known", file="", line=0, one_of=nowhere)
    assert _said(whole)[1].endswith("likeliest first: memory, memory")


_LEFT = Diagnosis(
    cause="unseeded-rng",
    factor="entropy",
    call="env.reset()",
    file="train.py",
    line=6,
    one_of=(
        ShownUse(factor="entropy", call="env.reset()", file="train.py", line=6),
        ShownUse(factor="clock", call="import gym", file="train.py", line=1),
    ),
    evidence=("seen: with all of them held fixed, two runs are bitwise identical up to step 3",),
)


_PAGES = Path(__file__).parents[2] / "docs" / "causes"


def test_every_cause_has_a_page_that_the_index_lists_with_its_remedy() -> None:
    for cause in CAUSES:
        page = (_PAGES / f"{cause}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {cause}\n") and f"({cause}.md)" in (
            _PAGES / "README.md"
        ).read_text(encoding="utf-8")
        remedies = page.partition("## Remedy\n")[2].partition("\n## ")[0].lower()
        for factor in FACTORS:
            assert (factor.cause != cause) or factor.remedy.lower() in remedies
    assert {path.stem for path in _PAGES.iterdir()} - {"README"} == set(CAUSES)
