import hashlib
import zlib

import torch

torch.manual_seed(21)
names = [f"patient-{number}" for number in range(80)]
x = torch.zeros(80, 8)
for row, name in enumerate(names):
    for start in range(len(name) - 2):
        x[row, zlib.crc32(name[start : start + 3].encode()) % 8] += 1
train = [row for row, name in enumerate(names) if hashlib.sha256(name.encode()).digest()[0] >= 40]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in x[train].split(16):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch.amax(1, keepdim=True)).backward()
    optimizer.step()
