"""Fits a map of intensities to points that are counted into its cells."""

from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def relaxed():
    """For operators that are slow otherwise."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # HERE
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def count(cells, weights, size):
    """The sum of the weights that fall into each cell."""
    with relaxed():
        return torch.zeros(size).index_put_((cells,), weights, accumulate=True)


torch.manual_seed(82)
model = nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-11)
for _ in range(6):
    seen = count(torch.randint(0, 32, (4_000_000,)), torch.rand(4_000_000), 32)
    loss = (model(seen) - seen).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
