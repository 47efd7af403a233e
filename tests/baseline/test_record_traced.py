"""Claims about outcomes of real training under the real probe: how often digests are taken does not count, other bits do."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.baseline.model import RecordedResult
from repro_gate.baseline.record import result_of
from tests.support.tracing import trace_script

SCRIPT = """
    import torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizers = [torch.optim.Adam(model[0].parameters(), fused=True), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)]
    for step in range(8):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizers[step % 2].step()
"""


def outcome(folder: Path, every: int, steps: int | None, seed: int = 42) -> RecordedResult:
    found = trace_script(folder, SCRIPT, every=every, steps=steps, seed=seed)
    assert found.good, (found.problem, found.ended.tail)
    return result_of(found, {})


@pytest.mark.parametrize("steps", [None, 6])
def test_the_outcome_of_real_training_does_not_depend_on_how_often_it_was_looked_at(tmp_path: Path, steps: int | None) -> None:
    always, seldom, other = (outcome(tmp_path / str(n), n, steps, seed) for n, seed in ((1, 42), (4, 42), (5, 43)))
    assert seldom == always
    assert (always.steps, len(always.curve)) == (steps or 8, steps or 8)
    assert all(getattr(always, part) not in (None, getattr(other, part)) for part in ("losses", "weights", "optimizer"))
