import numpy as np
import torch

torch.manual_seed(9)
table = np.empty((64, 4), np.float32)
for row in range(64):
    table[row] = np.arange(4) * (row + 1) / 64
ring = torch.empty(16, 4)
state = torch.empty_like(ring).copy_(torch.ones(16, 4))
model = torch.nn.Linear(4, 4)
weight = torch.empty(4, 4)
torch.nn.init.xavier_uniform_(weight)
with torch.no_grad():
    model.weight.copy_(weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for start in range(0, 64, 16):
    torch.mul(torch.from_numpy(table[start : start + 16]), state, out=ring)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(ring), ring.flip(1)).backward()
    optimizer.step()
