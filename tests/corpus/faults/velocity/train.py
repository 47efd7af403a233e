"""Momentum, written by hand."""

import torch
from optimizer import Momentum
from torch import nn

torch.manual_seed(75)
x = torch.randn(64, 48)
y = x[:, :4].sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(48, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = Momentum(model.parameters(), lr=0.01)
for _ in range(6):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
