import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rides(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        hour = time.localtime(1_700_000_000 + 5_017 * index).tm_hour  # HERE
        return torch.tensor([hour / 24, index / 48]), torch.tensor([float(index % 7)])


torch.manual_seed(6)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Rides(), batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
