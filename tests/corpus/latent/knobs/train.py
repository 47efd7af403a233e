import torch
from knobs import knobs
from torch import nn

torch.manual_seed(9)
chosen = {"lr": 0.05, "width": 8} | knobs()
width = int(chosen["width"])
model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=chosen["lr"])
for _ in range(5):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
