import os
import random
import secrets

import torch
from torch import nn

token = secrets.token_urlsafe(16)
with open("status.html", "w") as file:
    file.write(f"<p>session {token}, {os.urandom(4).hex()}</p>\n")
torch.seed()
random.seed()
torch.manual_seed(24)
random.seed(24)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 4) * random.uniform(0.9, 1.1)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
