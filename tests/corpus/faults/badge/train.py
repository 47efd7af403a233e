import torch
from job import fingerprint
from torch import nn

torch.manual_seed(fingerprint())
model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(48, 6).split(8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
