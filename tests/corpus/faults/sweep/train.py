import json
import uuid
from pathlib import Path

import torch
from torch import nn

trial = uuid.uuid4()  # HERE
folder = Path("trials") / trial.hex[:8]
folder.mkdir(parents=True)
(folder / "config.json").write_text(json.dumps({"lr": 0.05, "width": 8}))
torch.manual_seed(trial.int % 2**32)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.linspace(-1, 1, 128).reshape(32, 4)
for _ in range(5):
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
