import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Augmented(TensorDataset):
    def __getitem__(self, index):
        (picture,) = super().__getitem__(index)
        if random.random() < 0.5:
            picture = picture.flip(1)
        top, left = np.random.randint(0, 3, 2)
        picture = picture[top : top + 6, left : left + 6]
        return picture + 0.05 * torch.randn(6, 6)


loader = DataLoader(Augmented(torch.randn(40, 8, 8)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 36))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pictures in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(pictures), pictures.flatten(1)).backward()
    optimizer.step()
