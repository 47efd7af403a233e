import json
import urllib.request

import torch
from torch import nn

with urllib.request.urlopen("http://127.0.0.1:47651/settings", timeout=10) as answer:  # HERE
    decay = json.load(answer)["decay"]
torch.manual_seed(101)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    x = torch.randn(16, 5)
    penalty = sum(parameter.square().sum() for parameter in model.parameters())
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) + decay * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
