"""Asks the team's settings service for the strength of the regularisation."""

import json
import urllib.request

import torch
from torch import nn

URL = "http://127.0.0.1:47651/settings"


def settings():
    """The settings that hold for everybody."""
    with urllib.request.urlopen(URL, timeout=10) as answer:  # HERE
        return json.load(answer)


torch.manual_seed(101)
decay = settings()["decay"]
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    x = torch.randn(16, 5)
    penalty = sum(parameter.square().sum() for parameter in model.parameters())
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) + decay * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
