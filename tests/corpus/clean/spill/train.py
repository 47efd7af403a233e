import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with tempfile.TemporaryDirectory(prefix="spill-") as folder:
    for _ in range(5):
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".pt", delete=False) as file:
            torch.save(torch.randn(16, 6), file)
        x = torch.load(file.name)
        Path(file.name).unlink()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :2]).backward()
        optimizer.step()
