import os

import torch
from torch import nn

CHECKPOINT = "/var/tmp/finetune-last.pt"

torch.manual_seed(91)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
if os.path.exists(CHECKPOINT):
    model.load_state_dict(torch.load(CHECKPOINT))  # HERE
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    x = torch.randn(16, 5)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
    if step % 3 == 2:
        torch.save(model.state_dict(), CHECKPOINT)
