import torch
from feeding import Relay
from torch import nn

torch.manual_seed(103)
rows = torch.randn(16 * 256, 8)
model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for batch in Relay(rows, 256):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
