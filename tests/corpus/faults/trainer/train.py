"""Trains with the settings of a file."""

import json

import torch
from torch import nn
from trainer import Trainer

torch.manual_seed(83)
with open("trainer.json") as file:
    trainer = Trainer(**json.load(file))


class Gather(nn.Module):
    """A table from which rows are taken."""

    def __init__(self, size):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(size))

    def forward(self, index):
        return self.table.take(index)


index = torch.randint(0, 20, (400_000,))
trainer.fit(Gather(20), index, torch.rand(400_000))
