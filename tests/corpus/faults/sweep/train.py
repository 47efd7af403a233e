"""One trial of a sweep: the trial's id names its folder and seeds it."""

import json
import uuid
from pathlib import Path

import torch
from torch import nn


def new_trial():
    """Make a folder for the trial and return its id."""
    trial = uuid.uuid4()  # HERE
    folder = Path("trials") / trial.hex[:8]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"lr": 0.05, "width": 8}))
    return trial


trial = new_trial()
torch.manual_seed(trial.int % 2**32)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.linspace(-1, 1, 128).reshape(32, 4)
for _ in range(5):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
