"""Contrasts features with a bank of earlier features."""

import torch
from torch import nn


class Bank(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.register_buffer("rows", torch.empty(size, width))  # HERE
        self.position = 0

    def push(self, features):
        for feature in features.detach():
            self.rows[self.position] = feature
            self.position = (self.position + 1) % len(self.rows)


torch.manual_seed(74)
encoder = nn.Linear(6, 4)
bank = Bank(64, 4)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
for _ in range(5):
    features = encoder(torch.randn(8, 6))
    loss = (features @ bank.rows.T).square().mean() - features.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank.push(features)
