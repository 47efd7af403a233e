"""Claims about `report.figures`."""

from __future__ import annotations

import math

import pytest

from repro_gate.report import numbers


def test_figures_carry_their_sign_and_never_show_sixty_of_anything() -> None:
    for value, expected in (
        (12.44, "+12.4%"),
        (-3.0, "-3.0%"),
        (-0.01, "0.0%"),
        (99.94, "+99.9%"),
        (99.97, "+100%"),
        (-1234.5, "-1,234%"),
        (1.94e114, "+2e+114%"),
        (math.inf, "inf%"),
        (math.nan, "nan%"),
    ):
        assert numbers.percent(value) == expected
        for function in (numbers.budget, numbers.milliseconds, numbers.duration, numbers.small):
            assert function(value).strip()
    for value, expected in (
        (0.42, "0.42 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3720, "1 h 02 min"),
        (3599.6, "1 h 00 min"),
    ):
        assert numbers.duration(value) == expected
    for runs, percent in ((2, 78), (3, 63), (29, 10), (299, 1)):
        assert round(numbers.excluded(runs)) == percent
        assert (1 - numbers.excluded(runs) / 100) ** runs == pytest.approx(0.05)
