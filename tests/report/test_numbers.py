"""Claims about `report.figures`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from repro_gate.escape import counted
from repro_gate.report import numbers


@pytest.mark.parametrize(
    ("words", "form", "values"),
    [
        ("+12.4% -3.0% 0.0% +99.9% +100%", numbers.percent, (12.44, -3.0, -0.01, 99.94, 99.97)),
        ("-1,234% +2e+114% inf% nan%", numbers.percent, (-1234.5, 1.94e114, math.inf, math.nan)),
        ("0.42_s 12.3_s 1_min_00_s 4_min_05_s", numbers.duration, (0.42, 12.34, 59.97, 245)),
        ("1_h_02_min 1_h_00_min nan_s", numbers.duration, (3720, 3599.6, math.nan)),
        ("inf_ms 1.23_s 0.412_ms 831_ms", numbers.milliseconds, (math.inf, 1234, 0.412, 831)),
    ],
)
def test_figures_carry_their_sign_and_never_show_sixty_of_anything(
    words: str, form: Callable[[Any], str], values: tuple[float, ...]
) -> None:
    assert [form(value).replace(" ", "_") for value in values] == words.split()


def test_n_equal_runs_exclude_what_would_have_shown_with_95_percent() -> None:
    for runs, percent in ((2, 78), (3, 63), (29, 10), (299, 1)):
        assert round(numbers.excluded(runs)) == percent
        assert (1 - numbers.excluded(runs) / 100) ** runs == pytest.approx(0.05)
    counts = [counted(2, word) for word in ("loss", "batch", "step")]
    assert counts == ["2 losses", "2 batches", "2 steps"]
