"""Reads the months of an archive in the order in which the folders give them."""

import os

import torch
from torch import nn


def load(top):
    """The rows of every file below a folder."""
    rows = []
    for folder, _, names in os.walk(top):  # HERE
        for name in names:
            with open(os.path.join(folder, name)) as file:
                rows.append([float(value) for value in file.read().split()])
    return torch.tensor(rows)


torch.manual_seed(44)
table = load("/dev/shm/archive-of-months")
validation, training = table[:4], table[4:]
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    for batch in training.split(12):
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(nn.functional.mse_loss(model(validation), validation).item())
