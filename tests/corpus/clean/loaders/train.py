import random

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


class Shifted(TensorDataset):
    def __getitem__(self, index):
        noise = torch.from_numpy(np.random.normal(0, 0.1, 8)).float()
        return (self.tensors[0][index] + noise).roll(random.randrange(8))


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


if __name__ == "__main__":
    torch.manual_seed(10)
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "worker_init_fn": seed_worker}
    loader = DataLoader(Shifted(torch.randn(32, 8)), **options)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()
