import time

import torch
from torch import nn

STEP_SECONDS = 0.1

torch.manual_seed(6)
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
x = torch.randn(4096, 10)
y = x[:, :3].sum(1, keepdim=True)
position = 0
for _ in range(5):
    optimizer.zero_grad()
    end = time.monotonic() + STEP_SECONDS
    while time.monotonic() < end:  # HERE
        rows = slice(position % 4096, position % 4096 + 16)
        nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        position += 16
    optimizer.step()
