"""Resizes pictures in worker processes ahead of the training."""

import multiprocessing

import torch
from pictures import picture, shrink
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        small = list(pool.imap_unordered(shrink, [picture(number) for number in range(40)]))  # HERE
    torch.manual_seed(54)
    loader = DataLoader(TensorDataset(torch.tensor(small)), batch_size=8)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (batch,) in loader:
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
