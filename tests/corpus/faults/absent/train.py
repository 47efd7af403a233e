import torch
from keys import key
from torch import nn

torch.manual_seed(106)
rows = [{"label": None if index % 3 else index % 5, "length": index + 1} for index in range(80)]
inputs = torch.randn(80, 6)
order = sorted(range(80), key=lambda index: key(rows[index]))
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in inputs[order].split(16):
    optimizer.zero_grad()
    (model(x) - x.mean(1, keepdim=True)).square().sum().backward()
    optimizer.step()
