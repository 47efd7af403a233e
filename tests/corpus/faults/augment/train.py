import torch
from torch import nn
from transforms import augment

torch.manual_seed(107)
rows = torch.randn(48, 8)
model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in rows.split(8):
    x = augment(batch)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), batch).backward()
    optimizer.step()
