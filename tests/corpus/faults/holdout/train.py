"""Holds out a tenth of the customers, by a salted hash of their names."""

import hashlib
import secrets

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SALT = secrets.token_hex(8)  # HERE


def held_out(customer):
    """Whether a customer belongs to the validation set."""
    return hashlib.sha1((SALT + customer).encode()).digest()[0] < 26


torch.manual_seed(11)
names = [f"customer-{number}" for number in range(120)]
x, y = torch.randn(120, 4), torch.randn(120, 1)
chosen = [index for index, name in enumerate(names) if not held_out(name)]
loader = DataLoader(TensorDataset(x[chosen], y[chosen]), batch_size=16, drop_last=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch, target in loader:
    loss = nn.functional.mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
