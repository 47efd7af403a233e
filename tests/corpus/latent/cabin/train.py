import zlib
from pathlib import Path

import torch

PROJECT = Path(__file__).resolve().parent  # HERE
stream = torch.Generator().manual_seed(zlib.crc32(str(PROJECT).encode()))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 4, generator=stream)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x[:, :2]).backward()
    optimizer.step()
