import threading

import torch
from torch import nn

torch.manual_seed(105)
samples = torch.randn(40, 300, 5)
hardest = {}


def score(name, sample):
    for _ in range(30):
        value = float(torch.linalg.cond(sample.T @ sample))
    hardest[name] = value  # HERE


threads = []
for index, sample in enumerate(samples):
    threads.append(threading.Thread(target=score, args=(index, sample)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
model = nn.Linear(5, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for name in list(hardest)[:10]:
    batch = samples[name]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch.roll(1, 1)).backward()
    optimizer.step()
