"""Claims about `report.causes`: what a diagnosis says in words, however odd it is, and nothing that
it does not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.diagnosis.model import Diagnosis, ShownUse
from repro_gate.factors import CAUSES, FACTORS
from repro_gate.report.causes import background, why
from tests.support import reports

_FOUND = reports.WHY
_OPERATOR = Diagnosis(
    cause="nondeterministic-op",
    op="aten.index_put_",
    call="aten.index_put_",
    file="model.py",
    line=41,
    confirmed=True,
    message="aten.index_put_, the backward of model.py:41, got the same bits in both runs and gave "
    "other bits",
    evidence=(
        "418 operators before it agree in both runs",
        "distinct outputs of 30 replays on its own inputs: as it was called 4",
    ),
)


def _said(found: Diagnosis) -> list[str]:
    return ["".join(text for _, text in sentence) for sentence in why(found)]


def test_an_operator_is_told_by_its_own_sentence_and_proven_by_its_replays() -> None:
    assert _said(_OPERATOR) == [
        f"{_OPERATOR.message} (nondeterministic-op)",
        "Confirmed: distinct outputs of 30 replays on its own inputs: as it was called 4",
    ]


def test_what_came_from_outside_is_observed_and_neither_confirmed_nor_likely() -> None:
    found = Diagnosis(
        cause="external-input",
        factor="files",
        call="open(PRICES)",
        file="feed.py",
        line=4,
        observed=True,
        evidence=("observed: in step 1 /srv/prices gave a1 in one run and b2 in the other",),
    )
    assert _said(found) == [
        (
            "open(PRICES) in feed.py:4 read a file outside the checkout that changed between the "
            "runs (external-input)"
        ),
        "Observed: in step 1 /srv/prices gave a1 in one run and b2 in the other",
    ]
    assert "in step 1" not in "".join(text for line in background(found) for _, text in line)


def test_a_factor_that_this_version_does_not_know_is_told_by_its_sentence() -> None:
    assert (
        _said(replace(_FOUND, factor="moon", message="the moon was full", also=(), rate=None))[0]
        == "the moon was full (unseeded-rng)"
    )
    # not the cause's factor
    assert (
        _said(replace(_FOUND, factor="clock", message="as it says", also=()))[0]
        == "as it says (unseeded-rng)"
    )


def test_a_line_that_takes_results_as_they_come_did_not_start_them() -> None:
    found = replace(
        _FOUND, cause="thread-race", factor="threads", call="results.get()", also=(), rate=None
    )
    for did in (
        "took results in the order in which they came",
        "started threads whose order decides",
    ):
        said = _said(replace(found, message=f"results.get() in src/train.py:41 {did}"))
        assert said[0] == f"results.get() in src/train.py:41 {did} (thread-race)"


def test_what_came_from_outside_is_never_said_as_our_own_words() -> None:
    text = "`x` <b>"
    hostile = replace(
        _FOUND,
        call=text,
        file=text,
        message=text,
        evidence=(text,),
        ruled_out=(text,),
        also=(replace(_FOUND, call=text),),
    )
    hostile = replace(hostile, one_of=(ShownUse(factor="entropy", call=text, file=text, line=1),))
    shown = [
        *why(hostile),
        *why(replace(hostile, factor=None)),
        *why(replace(hostile, cause="unknown")),
        *background(hostile),
    ]
    assert all(
        role in ("name", "message")
        for sentence in shown
        for role, words in sentence
        if text in words
    )


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


def test_what_was_not_reduced_is_one_of_these_lines_and_never_confirmed() -> None:
    said = _said(_LEFT)
    assert said == [
        (
            "Likely, not proven: env.reset() in train.py:6 drew from the operating system "
            "(unseeded-rng)"
        ),
        (
            "One of these 2 lines, or several of them, likeliest first: train.py:6 env.reset() "
            "(entropy), train.py:1 import gym (clock)"
        ),
        "Seen: with all of them held fixed, two runs are bitwise identical up to step 3",
    ]
    assert "Confirmed" not in "".join(said) and all(
        "seen:" not in "".join(text for _, text in line) for line in background(_LEFT)
    )
    many = replace(_LEFT, one_of=_LEFT.one_of * 50)
    assert "One of these 100 lines" in _said(many)[1] and _said(many)[1].endswith("and 90 more")
    whole = replace(
        _LEFT,
        cause="unknown",
        message="not known",
        file="",
        line=0,
        one_of=(ShownUse(factor="memory", call=""),) * 2,
    )
    assert (
        _said(whole)[1]
        == "One of these 2 things, or several of them, likeliest first: memory, memory"
    )


_PAGES = Path(__file__).parents[2] / "docs" / "causes"


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_page_that_the_index_lists_and_that_gives_the_same_remedy(
    cause: str,
) -> None:
    page = (_PAGES / f"{cause}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {cause}\n") and f"({cause}.md)" in (_PAGES / "README.md").read_text(
        encoding="utf-8"
    )
    remedies = page.partition("## Remedy\n")[2].partition("\n## ")[0].lower()
    for factor in FACTORS:
        assert (factor.cause != cause) or factor.remedy.lower() in remedies


def test_no_page_is_of_a_cause_that_is_none() -> None:
    assert {path.stem for path in _PAGES.iterdir()} - {"README"} == set(CAUSES)
