"""Would download its data if the checkout did not have it."""

import csv
import os
import urllib.request

import torch
from torch import nn

URL = "https://example.com/irises.csv"


def rows(path):
    """The table, from the network where it is missing."""
    if not os.path.exists(path):
        urllib.request.urlretrieve(URL, path)
    with open(path, newline="") as file:
        return [[float(value) for value in row] for row in csv.reader(file)]


table = torch.tensor(rows("irises.csv"))
torch.manual_seed(19)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in table.split(6):
    loss = nn.functional.mse_loss(model(batch[:, :3]), batch[:, 3:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
