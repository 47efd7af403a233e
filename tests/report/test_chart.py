"""Claims about `report.chart`: it follows Mermaid's grammar, keeps the peak, and is not there where
a sentence says as much."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.compare.model import Comparison, GrowthPoint
from repro_gate.report import chart
from tests.support import reports

_NUMBER = r"-?\d+(?:\.\d+)?"
# the grammar of mermaid 11's xychart, as far as we use it: plain decimals, quoted titles, one
# series
_MERMAID = re.compile(
    rf"""xychart-beta\n
    \ +title\ "[^"\n]+"\n
    \ +x-axis\ "[^"\n]+"\ (?P<first>-?\d+)\ -->\ (?P<last>-?\d+)\n
    \ +y-axis\ "[^"\n]+"\ (?P<low>{_NUMBER})\ -->\ (?P<high>{_NUMBER})\n
    \ +(?P<mark>line)\ \[(?P<values>{_NUMBER}(?:,\ {_NUMBER})*)\]""",
    re.VERBOSE,
)


def _drawn(text: str) -> tuple[int, int, list[float], re.Match[str]]:
    """(first step, last step, values, match) of a diagram that follows the grammar."""
    found = _MERMAID.fullmatch(text)
    assert found is not None, text
    values = [float(value) for value in found["values"].split(", ")]
    assert float(found["low"]) < float(found["high"])
    assert all(
        float(found["low"]) - 0.001 <= value <= float(found["high"]) + 0.001 for value in values
    )
    return int(found["first"]), int(found["last"]), values, found


def test_the_loss_chart_is_logarithmic_where_gaps_span_decades() -> None:
    text = chart.chart(reports.DIFFERENT)
    assert text is not None and "log10" in text
    first, last, values, found = _drawn(text)
    assert (first, last, len(values), found["mark"]) == (0, 49, 50, "line")
    assert values[-1] == pytest.approx(math.log10(1e-9 * 1.3**49), abs=1e-3)
    assert values[0] == float(found["low"])


def test_a_gap_that_does_not_grow_a_hundredfold_is_left_to_the_sentence() -> None:
    losses = tuple((step, 1.0, 1.0 + 1e-6 * 1.5**step) for step in range(13))
    assert chart.chart(replace(reports.DIFFERENT, losses=losses[:12])) is None
    drawn = chart.chart(replace(reports.DIFFERENT, losses=losses))
    assert drawn is not None and "loss gap" in drawn
    shrinking = tuple((step, 1.0, 1.0 + 0.1 * 0.1**step) for step in range(6))
    assert chart.chart(replace(reports.DIFFERENT, losses=shrinking)) is None


def test_the_distance_of_the_parameters_is_drawn_where_it_was_measured() -> None:
    growth = tuple(
        GrowthPoint(step=step, weight_l2=1e-6 * 10**step, max_ulp=None) for step in range(4)
    )
    drawn = chart.chart(replace(reports.DIFFERENT, growth=growth))
    assert (
        drawn is not None
        and "Parameters of the two runs" in drawn
        and _drawn(drawn)[2] == [-6.0, -5.0, -4.0, -3.0]
    )
    assert chart.chart(replace(reports.DIFFERENT, growth=growth[:2])) is None, (
        "the losses grow, the parameters do not"
    )
    unknown = (*growth, GrowthPoint(step=4, weight_l2=None, max_ulp=None))
    assert "oss gap" in (chart.chart(replace(reports.DIFFERENT, growth=unknown)) or "")


@pytest.mark.parametrize(
    "pair",
    [
        reports.SAME,
        replace(reports.SAME, losses=()),
        replace(reports.DIFFERENT, losses=()),
        replace(reports.DIFFERENT, losses=((0, 1.0, 2.0),)),
    ],
)
def test_where_there_is_nothing_to_show_there_is_no_chart(pair: Comparison) -> None:
    assert chart.chart(pair) is None


def test_thinning_keeps_the_peak() -> None:
    losses = tuple((step, 1.0, 1.5 if step == 77_777 else 1.001) for step in range(100_000))
    text = chart.chart(replace(reports.DIFFERENT, losses=losses))
    assert text is not None
    first, last, values, _ = _drawn(text)
    assert (
        len(values) <= chart.POINTS
        and max(values) == pytest.approx(math.log10(0.5), abs=1e-3)
        and values[0] == pytest.approx(-3, abs=1e-3)
    )
    assert (last - first) % (len(values) - 1) == 0 and last < 100_000


_LOSS = st.one_of(st.floats(), st.sampled_from([0.0, 5e-324, 1e-300, 1e308, math.nan, math.inf]))


_STEP = st.integers(-1, 10**12)


@given(st.lists(st.tuples(_STEP, _LOSS, _LOSS), max_size=80))
def test_every_chart_follows_mermaids_grammar(losses: list[tuple[int, float, float]]) -> None:
    text = chart.chart(replace(reports.DIFFERENT, losses=tuple(losses)))
    if text is not None:
        first, last, values, _ = _drawn(text)
        assert 2 <= len(values) <= chart.POINTS and (last - first) % (len(values) - 1) == 0
