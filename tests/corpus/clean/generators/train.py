import random

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

numbers = np.random.default_rng(31)
dice = random.Random(32)
order = torch.Generator().manual_seed(33)
x = torch.from_numpy(numbers.normal(size=(64, 4))).float()
data = TensorDataset(x, x.sum(1, keepdim=True))
train, _ = random_split(data, [48, 16], generator=order)
model = torch.nn.Linear(4, 1)
with torch.no_grad():
    model.weight.normal_(generator=order)
    model.bias.fill_(dice.random())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch, target in DataLoader(train, batch_size=8, shuffle=True, generator=order):
    scale = dice.choice([0.5, 1.0, 2.0])
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(scale * batch), scale * target).backward()
    optimizer.step()
