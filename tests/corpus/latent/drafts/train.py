import os
import tempfile
import zlib

import torch

folder = os.path.join(tempfile.gettempdir(), "drafts")  # HERE
os.makedirs(folder, exist_ok=True)
torch.manual_seed(12)
paths = []
for number in range(12):
    paths.append(os.path.join(folder, f"shard-{number}.pt"))
    torch.save(torch.randn(4, 3) + number / 12, paths[-1])
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
shards = sorted(paths, key=lambda path: zlib.crc32(path.encode()))
for start in range(0, 12, 2):
    batch = torch.cat([torch.load(path) for path in shards[start : start + 2]])
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
