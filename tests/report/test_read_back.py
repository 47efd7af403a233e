"""Claims about `report.document`: a report that was written is read back."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.compare.model import (
    Fingerprint,
    GrowthPoint,
    HeatMap,
    HeatRow,
)
from repro_gate.github.marker import state_of, tenths
from repro_gate.report import document as written
from repro_gate.report import exports, html, markdown, matrix, terminal
from repro_gate.report.document import ReportError, report_from, to_json
from repro_gate.report.model import Origin, Report, WeakenedCheck
from repro_gate.spec.model import Tolerance
from repro_gate.trace.fields import Location
from tests.support import reports

_WHOLE = replace(
    reports.CHANGED,
    determinism=reports.compared(
        reports.SAME,
        reports.DIFFERENT,
        tolerance=Tolerance(1e-6, 1e-5),
        non_finite=((3, "nan"), (4, "-inf")),
    ),
    cost=replace(reports.COST, suspicious="outside", memory_ci95=(0.5, 2.5)),
    noise_floor=replace(
        reports.NOISE,
        first_divergence=reports.FIRST,
        losses=((0, 1.0, math.nan), (1, math.inf, 1.0)),
    ),
    fingerprint=Fingerprint(
        42, ((-1, "0" * 32), (0, "f" * 32)), {"loss": "a" * 32, "rng": "b" * 32}
    ),
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
    for shown in (markdown.comment, exports.junit, exports.sarif, terminal.render):
        assert shown(again) == shown(report)


def test_every_part_arrives_as_it_was() -> None:
    again = report_from(_stored(_WHOLE))
    for part in (
        *("diagnosis", "cost", "checklist", "runs", "fingerprint", "determinism", "baseline"),
        *("against", "base", "origin", "subject", "config_hash"),
    ):
        assert getattr(again, part) == getattr(_WHOLE, part), part
    found = again.determinism
    assert found is not None and found.seed == 2 and not found.identical
    assert [item.seed for item in found.seeds] == [1, 2]


_TEXT = st.text(max_size=40) | st.sampled_from(["nan", "inf", "", "x"])


def test_only_what_the_schema_requires_is_enough() -> None:
    document = _stored(reports.FAIL)
    for part in ("baseline", "against", "base", "origin", "fingerprint"):
        del document[part]
    found = document["determinism"]
    for name in ("seeds", "by_kind", "by_step", "losses", "weights", "non_finite", "tolerance"):
        del found[name]
    found["first_divergence"] = {"step": 3, "kind": "loss", "name": "loss"}
    document["subject"] = {"spec": "repro.yml", "command": "true", "commit": None}
    document["noise_floor"] = None
    assert "**step 3**, the `loss`" in markdown.comment(report_from(document))


def test_the_details_are_of_the_seed_that_the_document_is_about() -> None:
    document = _stored(_WHOLE)
    # the one that diverged lies beyond the rows that are kept
    document["determinism"]["seeds"] = document["determinism"]["seeds"][:1]
    found = report_from(document).determinism
    assert found is not None and (found.seed, found.identical) == (2, False)


def test_a_config_hash_that_was_cut_or_redacted_is_shown_and_not_refused() -> None:
    document, cut = _stored(reports.LOCKED), {"a\\": "one \\ backslash", "b": "[cut]", "c": 7}
    document["config_hash"]["inputs"]["recipe"] = cut
    hashed = report_from(document).config_hash
    assert hashed is not None and dict(hashed.inputs.recipe) == cut
    assert hashed.config_hash == reports.ADDRESS.config_hash


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("determinism", "first_divergence", "step"), 10**4_000),
        (("cost", "determinism_cost_pct"), 10**4_000),
        (("determinism", "weights", 0, "shape"), [10**4_000]),
        (("runs", 0, "exit_code"), -(10**4_000)),
    ],
)
def test_a_number_that_no_gate_run_gives_is_a_report_error(
    path: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    document: Any = _stored(reports.FAIL)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(ReportError, match="more than 30 digits"):
        written.load(tmp_path / "report.json")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows = list(enumerate(value)) if isinstance(value, list) else []
    rows = [*value.items()] if isinstance(value, dict) else rows
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
        with suppress(KeyError, IndexError, TypeError):
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
    try:
        report = report_from(document)
    except ReportError:
        return
    for render in (markdown.comment, markdown.summary, terminal.render, exports.sarif):
        assert render(report)
    assert written.render(report)
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

    def with_pair(**changes: object) -> Report:
        pair = replace(reports.DIFFERENT, **changes)  # type: ignore[arg-type]
        return replace(reports.FAIL, determinism=reports.compared(pair))

    def with_map(steps: int, cells: str) -> Report:
        rows = tuple(HeatRow("main", kind, "a.b", 1, cells) for kind in ("loss", "gradient"))
        return with_pair(heat_map=HeatMap(steps=steps, width=1, depth=1, rows=rows))

    def growth(*points: tuple[int, float, int | None]) -> tuple[GrowthPoint, ...]:
        return tuple(GrowthPoint(step=s, weight_l2=l2, max_ulp=ulp) for s, l2, ulp in points)

    turned = growth(*((step, 10.0**-step, 1 << 70) for step in (9, 2, 40, 0)))
    losses = ((0, 0.0, 1.7e308), (1, 5e-324, 0.0))
    dear = replace(reports.COST, ci95=(1.0, 1.7e308), determinism_cost_pct=1e308)
    return {
        "no cells": with_map(0, ""),
        "growth out of order": with_pair(growth=turned, losses=()),
        "the largest figures": with_pair(growth=growth((0, 1.7e308, None)), losses=losses),
        "a cost beyond any": replace(reports.PASS, cost=dear),
        "a far step": with_map(10**28, ".?"),
        "a cause without a reason": replace(reports.EXPLAINED, reasons=()),
    }


@pytest.mark.parametrize("report", _odd().values(), ids=_odd())
def test_an_odd_report_is_shown_by_every_renderer(report: Report) -> None:
    read = report_from(to_json(report))
    for render in (html.render, markdown.comment, markdown.summary, terminal.render):
        assert render(read)
    assert exports.sarif(read) and exports.junit(read)
    assert matrix.between(read, reports.PASS, ("a", "b")) and state_of(read)
    assert tenths(read) is None or all(abs(end) <= 10**9 for end in tenths(read) or ())


def test_a_text_that_is_longer_than_its_type_allows_is_cut_and_read_back() -> None:
    """A name out of a spec may be as long as the spec."""
    long = WeakenedCheck("data", "less", Location("x" * 5_000, 3))
    assert reports.WEAKENED.base is not None
    base = replace(reports.WEAKENED.base, weakened=(long,))
    read = report_from(to_json(replace(reports.WEAKENED, base=base)))
    assert read.base is not None and read.base.weakened[0].location is not None
    assert len(read.base.weakened[0].location.file) == 4096
