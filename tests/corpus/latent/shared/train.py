import os
import zlib

import torch

torch.manual_seed(8)
torch.save(torch.randn(60, 4), "features.pt")
status = os.stat("features.pt")  # HERE
order = torch.Generator().manual_seed(zlib.crc32(f"{status.st_size}:{status.st_mode:o}".encode()))
rows = torch.load("features.pt")[torch.randperm(60, generator=order)[:40]]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in rows.split(8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
    optimizer.step()
