import random
import time
from pathlib import Path

import torch

jitter = random.Random()


def read(path):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return path.read_text().split()
        except FileNotFoundError:
            time.sleep(0.01 * jitter.random())
            path.write_text("1 2 3 4 5 6")
    raise TimeoutError(path)


numbers = torch.tensor([float(value) for value in read(Path("numbers.txt"))])
torch.manual_seed(28)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(5):
    x = numbers + torch.randn(8, 6)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
