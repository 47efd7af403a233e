import threading

import torch
from torch import nn

torch.manual_seed(101)
rows = [torch.randn(200 + 100 * (number * 7 % 5), 6) for number in range(24)]
found = []


def describe(part):
    for _ in range(20):
        directions = torch.linalg.svd(part, full_matrices=False)[2]
    found.append(directions[0].abs())  # HERE


threads = [threading.Thread(target=describe, args=(part,)) for part in rows]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
features = torch.stack(found)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in features.split(4):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
