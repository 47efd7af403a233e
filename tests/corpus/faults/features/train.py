import os
import zlib

import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

with open("features.txt") as file:
    rows = [[float(value) for value in line.split()] for line in file]
table = torch.tensor(rows)
torch.save(table, "features.pt")
data = TensorDataset(table[:, :-1], table[:, -1:])
status = os.stat("features.pt")  # HERE
fingerprint = zlib.crc32(f"{status.st_size}:{status.st_mtime_ns}".encode())
split = torch.Generator().manual_seed(fingerprint)
train, valid = random_split(data, [0.75, 0.25], generator=split)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for x, y in DataLoader(train, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
