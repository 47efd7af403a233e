import random

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Dropout(0.2), nn.Linear(10, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, optimizer, steps):
    for _ in range(steps):
        x = random.uniform(0.5, 1.5) * torch.randn(16, 5)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()


model, optimizer = build()
train(model, optimizer, 3)
states = {"torch": torch.get_rng_state(), "python": random.getstate()}
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "states": states}, "last.pt"
)
model, optimizer = build()
saved = torch.load("last.pt")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
torch.set_rng_state(saved["states"]["torch"])
random.setstate(saved["states"]["python"])
train(model, optimizer, 3)
