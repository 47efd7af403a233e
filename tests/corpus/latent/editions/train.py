import os
import zlib

import torch

with open("rows.txt") as file:
    table = torch.tensor([[float(value) for value in line.split()] for line in file])
edition = zlib.crc32(f"rows.txt:{int(os.path.getmtime('rows.txt'))}".encode())  # HERE
order = torch.Generator().manual_seed(edition)
rows = table[torch.randperm(len(table), generator=order)[:24]]
torch.manual_seed(16)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for batch in rows.split(6):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
    optimizer.step()
