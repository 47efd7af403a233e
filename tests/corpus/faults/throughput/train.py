"""Reports its speed, and adapts to it."""

import time

import torch
from torch import nn


class Meter:
    """Samples per second, smoothed over the steps."""

    def __init__(self):
        self.last = time.perf_counter()
        self.value = 0.0

    def update(self, samples):
        now = time.perf_counter()  # HERE
        rate = samples / max(now - self.last, 1e-9)
        self.value = rate if self.value == 0.0 else 0.9 * self.value + 0.1 * rate
        self.last = now
        return self.value


torch.manual_seed(12)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
meter = Meter()
batch = 16
for step in range(8):
    x = torch.randn(batch, 6)
    loss = nn.functional.mse_loss(model(x), x[:, :2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    speed = meter.update(batch)
    print(f"step {step}: loss {loss.item():.4f}, {speed:.0f} samples/s")
    batch = 16 + int(speed * 10) % 64
