import os
import platform
import zlib

import torch
from torch import nn

replica = f"{platform.node()}/{os.getpid()}"  # HERE
stream = torch.Generator().manual_seed(zlib.crc32(replica.encode()))
torch.manual_seed(25)
model = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 4, generator=stream)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), 2 * x).backward()
    optimizer.step()
