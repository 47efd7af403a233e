"""Active learning: takes the next samples out of a pool, and never the same one twice."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sample:
    """One labelled point."""

    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Taken(Dataset):
    """The samples that were taken from the pool."""

    def __init__(self, pool, count):
        self.samples = [pool.pop() for _ in range(count)]  # HERE

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        return torch.tensor([sample.x, sample.x**2]), torch.tensor([sample.y])


torch.manual_seed(33)
points = torch.linspace(-1, 1, 6000).tolist()
pool = {Sample(point, 0.3 * point + point**2) for point in points}
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Taken(pool, 48), batch_size=8):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
