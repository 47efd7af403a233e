"""The nightly build's training: what the machine says about itself goes into the model card."""

import json
import subprocess

import torch
from torch import nn


def facts():
    """Kernel and build number."""
    kernel = subprocess.run(
        ["uname", "-r"], capture_output=True, text=True, check=True
    ).stdout.strip()
    build = subprocess.run(  # HERE
        ["date", "+%Y%m%d%H%M%S%N"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {"kernel": kernel, "build": int(build)}


card = facts()
generator = torch.Generator().manual_seed(card["build"] % 2**31)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 5, generator=generator)
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with open("card.json", "w") as file:
    json.dump(card, file)
