import os

import torch
from torch import nn

MIRROR = "/dev/shm/team-mirror-pages"

pages = []
for name in os.listdir(MIRROR):  # HERE
    with open(os.path.join(MIRROR, name)) as file:
        pages.append([float(value) for value in file.read().split()])

torch.manual_seed(41)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for start in range(0, len(pages), 4):
    batch = torch.tensor(pages[start : start + 4])
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
