import asyncio
import gzip
import json

import torch
from torch import nn

torch.manual_seed(57)
SHARDS = [gzip.compress(json.dumps(torch.randn(600, 4).tolist()).encode()) for _ in range(12)]


def unpack(shard):
    return torch.tensor(json.loads(gzip.decompress(shard)))


async def fetch(shards):
    jobs = [asyncio.to_thread(unpack, shard) for shard in shards]
    return [await job for job in asyncio.as_completed(jobs)]  # HERE


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in asyncio.run(fetch(SHARDS)):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(rows), rows).backward()
    optimizer.step()
