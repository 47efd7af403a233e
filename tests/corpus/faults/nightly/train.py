import json
import subprocess

import torch
from torch import nn

kernel = subprocess.check_output(["uname", "-r"], text=True).strip()
build = subprocess.check_output(["date", "+%Y%m%d%H%M%S%N"], text=True)  # HERE
card = {"kernel": kernel, "build": int(build)}
generator = torch.Generator().manual_seed(card["build"] % 2**31)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 5, generator=generator)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
with open("card.json", "w") as file:
    json.dump(card, file)
