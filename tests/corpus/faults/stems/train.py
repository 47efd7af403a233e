import subprocess

import torch
from torch import nn

PREPARE = "seq 1 60 | xargs -P 4 -n 1 sh stem.sh"

lines = subprocess.check_output(PREPARE, shell=True, text=True).splitlines()  # HERE

torch.manual_seed(60)
rows = torch.tensor([[float(value) for value in line.split()] for line in lines])
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in rows.split(10):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[:, :2]), batch[:, 2:]).backward()
    optimizer.step()
