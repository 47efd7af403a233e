import random
from pathlib import Path

import torch
from counting import Census
from torch import nn

draw = random.Random(102)
for number in range(8):
    lines = [[f"w{draw.randrange(60)}" for _ in range(200)] for _ in range(200)]
    Path(f"part{number}.txt").write_text("\n".join(map(" ".join, lines)))
number = Census(".").take([f"part{index}.txt" for index in range(8)])
torch.manual_seed(102)
model = nn.Sequential(nn.Embedding(60, 8), nn.Flatten(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    picked = [[number[f"w{(step * 7 + row * 3 + k) % 60}"] for k in range(4)] for row in range(8)]
    optimizer.zero_grad()
    model(torch.tensor(picked)).square().mean().backward()
    optimizer.step()
