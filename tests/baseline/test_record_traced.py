"""Claims about the outcome of real training under the real probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.baseline.record import result_of
from tests.support.tracing import trace_script

pytestmark = pytest.mark.slow
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


def test_the_outcome_of_real_training_does_not_depend_on_how_often_digests_were_taken(
    tmp_path: Path,
) -> None:
    always, seldom = (
        trace_script(tmp_path / str(every), SCRIPT, every=every, steps=6) for every in (1, 4)
    )
    assert always.good and seldom.good, (always.problem, seldom.problem)
    found = result_of(always, {})
    assert result_of(seldom, {}) == found and (found.steps, len(found.loss_curve)) == (6, 6)
    assert None not in (found.losses, found.weights, found.optimizer)
