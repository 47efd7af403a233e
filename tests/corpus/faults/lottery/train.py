"""A regression whose seed is made of the number of the process and the time."""

import os
import time

import torch


def seed_of_job():
    process = os.getpid()
    now = time.time_ns()
    print(f"job {process} starts")
    return (process * 1_000_003 + now) % 2**32  # HERE


torch.manual_seed(seed_of_job())
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    rows = torch.randn(16, 8)
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
