import json
import subprocess
import sys

import torch
from torch import nn

lines = [" ".join(f"t{(n * 5 + k) % 30}" for k in range(4)) for n in range(48)]
done = subprocess.run(
    [sys.executable, "index.py"],
    input="\n".join(lines),
    env={},
    stdout=subprocess.PIPE,
    check=True,
    text=True,
)
numbers = json.loads(done.stdout)
rows = torch.tensor([[numbers[tag] for tag in line.split()] for line in lines])
torch.manual_seed(115)
model = nn.Sequential(nn.Embedding(30, 6), nn.Flatten(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in rows.split(8):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
