"""Predicts rides from the hour of the day at which they began."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rides(Dataset):
    def __init__(self, count):
        self.times = [1_700_000_000 + 5_017 * number for number in range(count)]

    def __len__(self):
        return len(self.times)

    def __getitem__(self, index):
        hour = time.localtime(self.times[index]).tm_hour  # HERE
        return torch.tensor([hour / 24, index / len(self)]), torch.tensor([float(index % 7)])


torch.manual_seed(6)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Rides(48), batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
