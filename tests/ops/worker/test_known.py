"""`ops.worker.known`: the list that needs no training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from repro_gate.ops.worker.known import jobs  # noqa: E402


def test_there_are_about_forty_calls_behind_the_two_controls() -> None:
    names = list(dict.fromkeys(job.operator for job in jobs([], known=True)))
    assert names[:2] == ["control/races", "control/repeats"] and 38 <= len(names[2:]) <= 48
    assert {"scatter_add_", "index_add_", "bincount (weights)", "grid_sample"} <= set(names)
    assert not jobs([], known=False)


def test_each_form_is_measured_once() -> None:
    keys = [(job.operator, job.form) for job in jobs([], known=True)]
    assert len(set(keys)) == len(keys)
    assert ("scatter_add_", "bfloat16 backward large") in keys
    assert ("index_copy_", "float32 backward small") not in keys


@pytest.mark.parametrize(
    "job",
    [
        job
        for job in jobs([], known=True)
        if job.form.startswith("float32") and "large" not in job.form
    ],
    ids=lambda job: f"{job.operator} {job.form}",
)
def test_each_line_of_the_table_can_be_executed_in_float32(job: Any) -> None:
    call = job.make()
    assert call.execute(call.prepare()) is not None


@pytest.mark.slow
def test_the_catalogs_racing_operators_still_differ(ask: Callable[..., Any]) -> None:
    """Those of the list that an EPYC of two processors was seen to differ in."""
    rows = ask(known=True, seconds=60)[1:-1]
    found = {row["operator"] for row in rows if row["off"]["outcome"] == "differs"}
    assert found >= {
        "control/races",
        "index_put_ (accumulate)",
        "index_put_ (accumulate, rows)",
        "index_put_ (no accumulate)",
        "put_ (accumulate)",
        "put_ (no accumulate)",
        "index_copy_",
        "take",
        "__getitem__ (one tensor)",
        "__getitem__ (list of tensors)",
    }
