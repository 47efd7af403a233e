"""Claims about `report.causes`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.diagnosis.model import Diagnosis, ShownUse
from repro_gate.factors import CAUSES, FACTORS
from repro_gate.report.findings import background, why
from tests.support import reports

_FOUND = reports.WHY


def _said(found: Diagnosis) -> list[str]:
    return ["".join(text for _, text in sentence) for sentence in why(found)]


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
    cause, seen = _said(found)
    assert cause.startswith("open(PRICES) in feed.py:4 read a file outside the checkout")
    assert seen.startswith("Observed: in step 1 /srv/prices")
    assert "in step 1" not in "".join(text for line in background(found) for _, text in line)


@pytest.mark.parametrize(
    "change",
    [
        {"factor": None, "op": "aten.index_put_", "cause": "nondeterministic-op"},
        {"factor": "moon"},
        {"factor": "clock"},  # not the cause's factor
        {"factor": "threads", "cause": "thread-race", "call": "results.get()"},
    ],
    ids=["an operator", "an unknown factor", "another cause's factor", "who did not start them"],
)
def test_what_its_factor_does_not_tell_is_told_by_its_own_sentence(change: dict[str, Any]) -> None:
    message = "results.get() in src/train.py:41 took results in the order in which they came"
    found = replace(_FOUND, message=message, also=(), rate=None, **change)
    assert _said(found)[0] == f"{message} ({found.cause})"


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
        one_of=(ShownUse(factor="entropy", call=text, file=text, line=1),),
    )
    shown = [*background(hostile), *why(hostile)]
    shown += [*why(replace(hostile, factor=None)), *why(replace(hostile, cause="unknown"))]
    own = [role for sentence in shown for role, words in sentence if text in words]
    assert own and set(own) <= {"name", "message"}


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
    cause, lines, seen = _said(_LEFT)
    assert cause.startswith("Likely, not proven: env.reset() in train.py:6")
    assert "train.py:6 env.reset() (entropy), train.py:1 import gym (clock)" in lines
    assert seen.startswith("Seen: ") and "Confirmed" not in cause + lines + seen
    assert all("seen:" not in "".join(text for _, text in line) for line in background(_LEFT))
    many = _said(replace(_LEFT, one_of=_LEFT.one_of * 50))[1]
    assert "One of these 100 lines" in many and many.endswith("and 90 more")
    nowhere = (ShownUse(factor="memory", call=""),) * 2
    whole = replace(_LEFT, cause="unknown", message="not known", file="", line=0, one_of=nowhere)
    assert _said(whole)[1].endswith("likeliest first: memory, memory")


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
