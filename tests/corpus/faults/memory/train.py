import torch
from machine import rows_that_fit
from torch import nn

torch.manual_seed(104)
data = torch.randn(4096, 8)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    batch = data[torch.randperm(4096)[: rows_that_fit(most=512)]]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
