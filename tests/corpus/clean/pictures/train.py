"""Shrinks pictures in worker processes, in order."""

import multiprocessing

import torch
from torch import nn


def shrink(size):
    """The means of a pattern's rows."""
    return [sum(row * column % 251 for column in range(size)) / size / 251 for row in range(8)]


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        rows = torch.tensor(list(pool.imap(shrink, [30 + 7 * number for number in range(32)])))
    torch.manual_seed(31)
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in rows.split(8):
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
