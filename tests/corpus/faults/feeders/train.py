import multiprocessing

import torch
from torch import nn


def produce(worker, workers, ready):
    for number in range(worker, 60, workers):
        generator = torch.Generator().manual_seed(number)
        rows = [torch.randn(32, 6, generator=generator).tolist() for _ in range(4)]
        ready.put(rows[-1])
    ready.put(None)


if __name__ == "__main__":
    ready = multiprocessing.Queue(maxsize=8)
    for number in range(2):
        worker = multiprocessing.Process(target=produce, args=(number, 2, ready))
        worker.start()
    torch.manual_seed(66)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    running = 2
    while running:
        rows = ready.get()  # HERE
        if rows is None:
            running -= 1
            continue
        batch = torch.tensor(rows)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()
