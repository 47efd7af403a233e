"""Claims about `report.document`: what was written is read back as the same report, and what is
wrong raises ReportError alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.compare.model import (
    Comparison,
    Fingerprint,
    GrowthPoint,
    HeatMap,
    HeatRow,
)
from repro_gate.github.marker import state_of, tenths
from repro_gate.report import document as written
from repro_gate.report import exports, html, markdown, matrix, terminal
from repro_gate.report.document import ReportError, report_from, to_json
from repro_gate.report.model import Origin, Report, SeedResult
from repro_gate.spec.model import Tolerance
from tests.support import reports

_WHOLE = replace(
    reports.CHANGED,
    comparisons=(SeedResult(1, reports.SAME), SeedResult(2, reports.DIFFERENT)),
    cost=replace(reports.COST, suspicious="outside", memory_ci95=(0.5, 2.5)),
    noise_floor=replace(
        reports.NOISE,
        first_divergence=reports.FIRST,
        losses=((0, 1.0, math.nan), (1, math.inf, 1.0)),
    ),
    fingerprint=Fingerprint(
        42, ((-1, "0" * 32), (0, "f" * 32)), {"loss": "a" * 32, "rng": "b" * 32}
    ),
    tolerance=Tolerance(1e-6, 1e-5),
    non_finite=((3, "nan"), (4, "-inf")),
    origin=Origin("octo/training", "c" * 40, 17, 2, "gpu"),
    base=reports.WEAKENED.base,
    diagnosis=reports.EXPLAINED.diagnosis,
)
_ALL = {**reports.ALL, "whole": _WHOLE, "hostile": reports.hostile()}


def _stored(report: Report) -> dict[str, Any]:
    """Through the file: keys come back sorted."""
    document: dict[str, Any] = json.loads(written.render(report))
    written.report_from(document)
    return document


@pytest.mark.parametrize("name", _ALL)
def test_a_report_that_was_written_is_read_back_and_looks_the_same(name: str) -> None:
    report, document = _ALL[name], _stored(_ALL[name])
    again = report_from(document)
    assert to_json(again) == document
    assert markdown.comment(again) == markdown.comment(report)


def test_every_part_arrives_as_it_was() -> None:
    again = report_from(_stored(_WHOLE))
    for part in (
        "diagnosis",
        "cost",
        "checklist",
        "runs",
        "fingerprint",
        "tolerance",
        "baseline",
        "against",
        "base",
        "origin",
        "subject",
    ):
        assert getattr(again, part) == getattr(_WHOLE, part), part
    assert again.config_hash == _WHOLE.config_hash
    assert [item.seed for item in again.comparisons] == [1, 2]
    found = again.determinism
    assert found is not None and found.seed == 2 and found.comparison == reports.DIFFERENT


_TEXT = st.text(max_size=40)
_NUMBER = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 5e-324, 1e308])
_VALUE = _TEXT | st.booleans() | st.integers(-(10**29), 10**29) | _NUMBER
_DIVERGENCE = st.builds(
    replace,
    st.just(reports.FIRST),
    step=st.integers(-1, 10**6),
    name=_TEXT,
    process=_TEXT,
    detail=_TEXT,
    dtype=st.none() | _TEXT,
    shape=st.none() | st.lists(st.integers(0, 10**9), max_size=4).map(tuple),
    values=st.none() | st.tuples(_VALUE, _VALUE),
    max_abs=st.none() | _NUMBER,
    max_ulp=st.none() | st.integers(0, 2**64),
    l2=st.none() | _NUMBER,
    relative_l2=st.none() | _NUMBER,
)
_COMPARISON = st.builds(
    Comparison,
    identical=st.booleans(),
    steps=st.integers(0, 10**6),
    tensors=st.integers(0, 10**6),
    differing=st.integers(0, 10**6),
    first_divergence=st.none() | _DIVERGENCE,
    by_step=st.lists(st.tuples(st.integers(-1, 10**6), st.integers(0, 99)), max_size=4).map(tuple),
    differing_steps=st.integers(0, 10**6),
    losses=st.lists(st.tuples(st.integers(-1, 10**6), _NUMBER, _NUMBER), max_size=4).map(tuple),
    weights=st.lists(_DIVERGENCE, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(reports.ALL)), _TEXT, _COMPARISON, _COMPARISON, _NUMBER)
def test_any_report_is_read_back_and_looks_the_same(
    name: str, text: str, pair: Comparison, other: Comparison, number: float
) -> None:
    base = reports.hostile(text) if name == "fail" else reports.ALL[name]
    cost = replace(
        reports.COST, determinism_cost_pct=number, ci95=(number, 1.0), memory_cost_pct=number
    )
    report = replace(
        base,
        comparisons=(SeedResult(7, pair), SeedResult(8, other)),
        cost=cost,
        seconds=abs(number),
    )
    document = _stored(report)
    again = report_from(document)
    assert to_json(again) == document
    for shown in (markdown.comment, exports.junit, exports.sarif, terminal.render):
        assert shown(again) == shown(report)


def test_only_what_the_schema_requires_is_enough() -> None:
    document = _stored(reports.FAIL)
    for part in ("baseline", "against", "base", "origin", "fingerprint"):
        del document[part]
    for name in (
        "seeds",
        "by_kind",
        "by_step",
        "losses",
        "weights",
        "non_finite",
        "tolerance",
    ):
        del document["determinism"][name]
    document["determinism"]["first_divergence"] = {"step": 3, "kind": "loss", "name": "loss"}
    document["subject"] = {"spec": "repro.yml", "command": "true", "commit": None}
    document["noise_floor"] = None
    written.report_from(document)
    assert "**step 3**, the `loss`" in markdown.comment(report_from(document))


def test_the_details_are_of_the_seed_that_the_document_is_about() -> None:
    cut = _stored(
        replace(
            reports.FAIL,
            comparisons=(SeedResult(1, reports.SAME), SeedResult(2, reports.DIFFERENT)),
        )
    )
    # the one that diverged lies beyond the rows that are kept
    cut["determinism"]["seeds"] = cut["determinism"]["seeds"][:1]
    found = report_from(cut).determinism
    assert found is not None and (found.seed, found.comparison) == (2, reports.DIFFERENT)


def test_a_config_hash_that_was_cut_or_redacted_is_shown_and_not_refused() -> None:
    document = _stored(reports.LOCKED)
    document["config_hash"]["inputs"]["recipe"] = {"a\\": "one \\ backslash", "b": "[cut]", "c": 7}
    hashed = report_from(document).config_hash
    assert hashed is not None and dict(hashed.recipe_inputs) == {
        "a\\": "one \\ backslash",
        "b": "[cut]",
        "c": 7,
    }
    assert hashed.config_hash == reports.ADDRESS.config_hash


@pytest.mark.parametrize("field", ["config_hash", "recipe", "platform"])
def test_a_line_break_behind_a_hash_is_refused(field: str) -> None:
    document = _stored(reports.LOCKED)
    document["config_hash"][field] += "\n"
    with pytest.raises(ReportError, match=field):
        report_from(document)


_HUGE = 10**4_000
_ABSURD: dict[str, Callable[[dict[str, Any]], None]] = {
    "a step": lambda document: document["determinism"]["first_divergence"].update(step=_HUGE),
    "a count": lambda document: document["determinism"].update(tensors=_HUGE),
    "a size": lambda document: document["cost"].update(default_peak_bytes=_HUGE),
    "a number": lambda document: document["cost"].update(determinism_cost_pct=_HUGE),
    "a shape": lambda document: document["determinism"]["weights"][0].update(shape=[_HUGE]),
    "seconds": lambda document: document.update(seconds=_HUGE),
    "an exit code": lambda document: document["runs"][0].update(exit_code=-_HUGE),
}


@pytest.mark.parametrize("what", _ABSURD)
def test_a_number_that_no_gate_run_gives_is_a_report_error(what: str, tmp_path: Path) -> None:
    document = _stored(reports.FAIL)
    _ABSURD[what](document)
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(ReportError, match="more than 30 digits"):
        written.load(tmp_path / "report.json")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["nan", "inf", "", "x"])
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, item in rows for place in _places(item, (*path, key)))]


_DOCUMENT = _stored(_WHOLE)
_POINTS = _places(_DOCUMENT)[1:]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_POINTS), _JSON), min_size=1, max_size=3))
def test_a_mangled_document_raises_report_error_or_every_renderer_shows_it(
    changes: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = json.loads(json.dumps(_DOCUMENT))
    for path, value in changes:
        place = document
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    try:
        written.report_from(document)
        report = report_from(document)
    except ReportError:
        return
    for render in (
        markdown.comment,
        markdown.summary,
        terminal.render,
        exports.sarif,
        written.render,
    ):
        assert render(report)
    exports.workflow_commands(report)


@pytest.mark.parametrize(
    "document",
    [{}, {"verdict": []}, {**_DOCUMENT, "runs": [None]}, {**_DOCUMENT, "cost": {"ci95": 1}}],
)
def test_what_was_never_compared_with_the_schema_is_a_report_error_too(
    document: dict[str, Any],
) -> None:
    with pytest.raises(ReportError, match="not a report of this version"):
        report_from(document)


def _odd() -> dict[str, Report]:
    """Valid by the schema, and not as the gate writes them."""
    pair = reports.FAIL.comparisons[0].comparison
    rows = (HeatRow("main", "loss", "", 1, ""), HeatRow("main", "gradient", "a.b", 1, ""))

    def with_pair(**changes: object) -> Report:
        return replace(reports.FAIL, comparisons=(SeedResult(42, replace(pair, **changes)),))  # type: ignore[arg-type]

    far = (HeatRow("main", "gradient", "blocks.3.attn", 1, ".?"),)
    largest = (GrowthPoint(step=0, weight_l2=1.7e308, max_ulp=None),)
    growth = tuple(
        GrowthPoint(step=step, weight_l2=10.0**-step, max_ulp=1 << 70) for step in (9, 2, 40, 0)
    )
    return {
        "no cells": with_pair(heat_map=HeatMap(steps=0, width=1, depth=1, rows=rows)),
        "growth out of order": with_pair(growth=growth, losses=()),
        "the largest figures": with_pair(
            growth=largest, losses=((0, 0.0, 1.7e308), (1, 5e-324, 0.0))
        ),
        "a cost beyond any": replace(
            reports.PASS,
            cost=replace(reports.COST, ci95=(1.0, 1.7e308), determinism_cost_pct=1e308),
        ),
        "a far step": with_pair(heat_map=HeatMap(steps=10**28, width=1, depth=1, rows=far)),
        "a cause without a reason": replace(reports.EXPLAINED, reasons=()),
    }


@pytest.mark.parametrize("report", _odd().values(), ids=_odd())
def test_an_odd_report_is_shown_by_every_renderer(report: Report) -> None:
    read = report_from(to_json(report))
    for render in (
        html.render,
        markdown.comment,
        markdown.summary,
        terminal.render,
        exports.sarif,
        exports.junit,
    ):
        assert render(read)
    assert matrix.between(read, reports.PASS, ("a", "b")) and state_of(read)
    assert tenths(read) is None or all(abs(end) <= 10**9 for end in tenths(read) or ())
