import concurrent.futures as futures
import itertools
import random

import torch
from torch import nn

random.seed(0)
documents = [[random.randrange(32) for _ in range(random.randrange(2000, 8000))] for _ in range(40)]


def count(document):
    counts = [0] * 32
    for before, token in itertools.pairwise(document):
        counts[token] += 1 + (before > token)
    return counts


with futures.ThreadPoolExecutor(max_workers=6) as pool:
    jobs = [pool.submit(count, document) for document in documents]
    counts = [job.result() for job in futures.as_completed(jobs)]  # HERE

torch.manual_seed(52)
table = torch.tensor(counts).float()
table /= table.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for batch in table.split(8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
