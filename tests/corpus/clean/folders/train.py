import os
from pathlib import Path

import torch

rows = []
for name in sorted(os.listdir("parts")):
    lines = Path("parts", name).read_text().splitlines()
    rows += [[float(value) for value in line.split()] for line in lines]
print(sum(path.stat().st_size for path in Path("parts").iterdir()), "bytes")
torch.manual_seed(20)
table = torch.tensor(rows)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in table.split(4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch[:, :2]), batch[:, 2:]).backward()
    optimizer.step()
