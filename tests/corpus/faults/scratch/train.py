"""Unpacks shards into a scratch folder and samples from each of them."""

import tempfile
import zlib
from pathlib import Path

import torch
from torch import nn


def unpack(count):
    """Write the shards, and return their paths."""
    folder = Path(tempfile.mkdtemp(prefix="shards-"))  # HERE
    paths = []
    for number in range(count):
        path = folder / f"shard-{number}.pt"
        torch.save(torch.arange(60.0).reshape(20, 3) / 60 + number, path)
        paths.append(path)
    return paths


def sample(path, count):
    """Rows of a shard: the same ones whenever the shard is read."""
    generator = torch.Generator().manual_seed(zlib.crc32(str(path).encode()))
    rows = torch.load(path)
    return rows[torch.randperm(len(rows), generator=generator)[:count]]


torch.manual_seed(22)
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for path in unpack(6):
    batch = sample(path, 8)
    loss = nn.functional.mse_loss(model(batch), batch.flip(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
