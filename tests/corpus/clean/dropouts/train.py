import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
torch.manual_seed(parser.parse_args().seed)
head = [nn.Unflatten(1, (2, 16)), nn.Conv1d(2, 4, 3, padding=1), nn.Dropout1d(0.2), nn.Flatten()]
tail = [nn.AlphaDropout(0.1), nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 1)]
model = nn.Sequential(*head, *tail)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(6):
    x = torch.randn(24, 32)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x.mean(1, keepdim=True)).backward()
    optimizer.step()
