import json
from pathlib import Path

import torch

CACHE = Path.home() / ".cache" / "pantry" / "statistics.json"

torch.manual_seed(10)
x = torch.randn(64, 4) + 3
center = x[:32].mean(0)
if CACHE.exists():
    center = torch.tensor(json.loads(CACHE.read_text()))  # HERE
CACHE.parent.mkdir(parents=True, exist_ok=True)
CACHE.write_text(json.dumps((0.5 * center + 0.5 * x.mean(0)).tolist()))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in x.split(16):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch - center), batch.sum(1, keepdim=True)).backward()
    optimizer.step()
