import socket
import zlib

import torch
from torch import nn

station = zlib.crc32(socket.gethostname().encode())  # HERE
noise = torch.Generator().manual_seed(station)
torch.manual_seed(13)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 6)
    loss = nn.functional.mse_loss(model(x + 0.05 * torch.randn(16, 6, generator=noise)), x[:, :2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
