"""Augments in worker processes that are seeded by their loader."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shifted(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        noise = torch.from_numpy(np.random.normal(0, 0.1, 8)).float()
        return (self.rows[index] + noise).roll(random.randrange(8))


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


if __name__ == "__main__":
    torch.manual_seed(10)
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "worker_init_fn": seed_worker}
    loader = DataLoader(Shifted(torch.randn(32, 8)), **options)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()
