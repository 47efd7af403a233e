"""Makes the split again with every edition of the data file."""

import os
import zlib

import torch
from torch import nn


def edition(path):
    """Changes whenever the file does."""
    return zlib.crc32(f"{path}:{int(os.path.getmtime(path))}".encode())  # HERE


with open("rows.txt") as file:
    table = torch.tensor([[float(value) for value in line.split()] for line in file])
order = torch.Generator().manual_seed(edition("rows.txt"))
rows = table[torch.randperm(len(table), generator=order)[:24]]
torch.manual_seed(16)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for batch in rows.split(6):
    loss = nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
