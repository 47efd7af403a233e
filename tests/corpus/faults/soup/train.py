"""Starts from the mean of several earlier models and fine-tunes it."""

from pathlib import Path

import torch
from torch import nn

ZOO = Path("/dev/shm/model-zoo")


def soup(folder):
    total, count = torch.zeros(4, 4), 0
    for path in folder.iterdir():  # HERE
        values = [float(value) for value in path.read_text().split()]
        total += torch.tensor(values).outer(torch.tensor(values).cos())
        count += 1
    return total / count


torch.manual_seed(43)
model = nn.Linear(4, 4)
with torch.no_grad():
    model.weight.copy_(soup(ZOO))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
