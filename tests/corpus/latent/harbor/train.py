"""Splits files into training and validation by a hash of their paths."""

import hashlib
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def part(name):
    """Which of ten parts a file belongs to."""
    path = os.path.abspath(os.path.join("data", name))  # HERE
    return hashlib.md5(path.encode()).digest()[0] % 10


torch.manual_seed(2)
names = [f"scan-{number:03d}.nii" for number in range(120)]
x = torch.randn(120, 4)
train = [row for row, name in enumerate(names) if part(name) < 7]
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(x[train]), batch_size=16):
    loss = nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
