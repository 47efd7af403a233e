import queue
import threading

import torch
from torch import nn

source = torch.randn(16 * 64, 6, generator=torch.Generator().manual_seed(53))
ready = queue.Queue(maxsize=4)


def prepare(worker, workers):
    for number in range(worker, 16, workers):
        rows = source[number * 64 : (number + 1) * 64]
        rows = rows @ torch.linalg.qr(rows.T @ rows)[0]
        ready.put(rows)


for worker in range(4):
    threading.Thread(target=prepare, args=(worker, 4), daemon=True).start()

torch.manual_seed(53)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(16):
    batch = ready.get()  # HERE
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
