import random

import torch
from torch import nn
from torch.utils.data import DataLoader


class Image:
    def __init__(self, pixels, label):
        self.pixels, self.label = pixels, label


class Masked(list):
    def __getitem__(self, index):
        image = super().__getitem__(index)
        chooser = random.Random(id(image))  # HERE
        mask = torch.tensor([chooser.random() < 0.5 for _ in image.pixels])
        return image.pixels * mask, image.label


torch.manual_seed(27)
data = Masked([Image(torch.randn(16), torch.randn(1)) for _ in range(32)])
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for pixels, label in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(pixels), label).backward()
    optimizer.step()
