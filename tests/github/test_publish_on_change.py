"""What the action posts by default: each failure whole, a pass only where it is news, and then in
one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.baseline.model import BaselineFinding
from repro_gate.compare.model import SpeedChange
from repro_gate.github.marker import is_news
from repro_gate.github.settings import Inputs
from repro_gate.report.model import Report
from tests.support import reports
from tests.support.github.stage import ORIGIN, RUN, Stage, signed

_GREEN = replace(reports.LOCKED, notes=())  # a pass with an unchanged baseline


def _next(stage: Stage, report: Report, run: int) -> list[str]:
    """The bodies of the comments once one more run has published, without their markers."""
    stage.inputs = replace(stage.inputs, comment=Inputs().comment)
    stage.job = replace(stage.job, run_id=RUN + run)
    stage.publish(replace(signed(report), origin=replace(ORIGIN, run_id=RUN + run)))
    return [item["body"].partition("\n")[2] for item in stage.github.comments(7)]


def test_by_default_a_pass_is_silent_a_failure_is_not_and_a_mended_one_is_green_again(
    stage: Stage,
) -> None:
    assert Inputs().comment == "on-change"
    assert _next(stage, _GREEN, 1) == [] and "pass, bitwise identical" in stage.summary
    (red,) = _next(stage, reports.EXPLAINED, 2)
    assert red.startswith("## ❌ Repro Gate: fail")
    (green,) = _next(stage, _GREEN, 3)
    assert green.startswith(
        "✅ **Repro Gate: pass**, bitwise identical; the run before: fail; determinism costs "
        "**+12.4%**, 95% interval +10.1% to +14.6%."
    )
    assert _next(stage, replace(_GREEN, seconds=9.0), 4) == [green]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (reports.WEAKENED, "### ⚠️ Weakened checks"),
        (reports.CHANGED, "⚠️ **changed**: inputs changed and so did the results"),
        (
            replace(
                _GREEN,
                baseline=BaselineFinding(
                    status="no-op", message="inputs changed, the results did not"
                ),
            ),
            "✅ **no-op**: inputs changed, the results did not",
        ),
    ],
    ids=["weakened", "changed", "no-op"],
)
def test_by_default_a_pass_with_news_is_told_in_few_lines(
    stage: Stage, report: Report, said: str
) -> None:
    (body,) = _next(stage, report, 1)
    assert body.startswith("✅ **Repro Gate: pass**, bitwise identical; determinism costs")
    assert said in body
    assert "| **" not in body and len(body.encode()) < 1_500


def test_by_default_another_cost_is_told_with_the_one_before(stage: Stage) -> None:
    _next(stage, reports.WEAKENED, 1)
    dearer = replace(reports.COST, determinism_cost_pct=30.0, ci95=(28.0, 32.5))
    (body,) = _next(stage, replace(reports.WEAKENED, cost=dearer), 2)
    assert (
        "bitwise identical, as before; determinism costs **+30.0%**, 95% interval +28.0% to "
        "+32.5%, before +10.1% to +14.6%." in body
    )
    alike = replace(reports.COST, determinism_cost_pct=31.0, ci95=(30.0, 33.0))
    assert _next(stage, replace(reports.WEAKENED, cost=alike), 3) == [body]


def test_what_is_news_of_a_pass() -> None:
    against = reports.CHANGED.against
    assert against is not None and not is_news(_GREEN) and not is_news(reports.PASS)
    calm = replace(
        against,
        status="unchanged",
        speed=(SpeedChange(arm="default", slower_pct=1.0, ci95=(-1.0, 3.0), runs=4),),
    )
    assert not is_news(replace(_GREEN, against=calm))
    assert is_news(
        replace(_GREEN, against=replace(calm, speed=(replace(calm.speed[0], ci95=(0.5, 3.0)),)))
    )
    assert is_news(replace(_GREEN, against=against)) and is_news(reports.WEAKENED)
