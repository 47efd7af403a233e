from pathlib import Path

import torch

ZOO = Path("/dev/shm/model-zoo")


def soup(folder):
    total, count = torch.zeros(4, 4), 0
    for path in folder.iterdir():  # HERE
        values = [float(value) for value in path.read_text().split()]
        total += torch.tensor(values).outer(torch.tensor(values).cos())
        count += 1
    return total / count


torch.manual_seed(43)
model = torch.nn.Linear(4, 4)
with torch.no_grad():
    model.weight.copy_(soup(ZOO))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
