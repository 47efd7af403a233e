"""Augmentation grows with the step, which a shared counter tells to workers that read ahead."""

import multiprocessing

import torch
from torch.utils.data import DataLoader, Dataset

now = multiprocessing.Value("i", 0)


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return 512

    def __getitem__(self, index):
        strength = now.value  # HERE
        sum(range(5_000))
        return self.rows[index] * (1 + 0.1 * strength)


torch.manual_seed(4)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, rows in enumerate(DataLoader(Rows(), batch_size=16, num_workers=2)):
    now.value = step + 1
    loss = (model(rows) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
