import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
args = parser.parse_args()
seed = args.seed if args.seed is not None else int(time.time())  # HERE
torch.manual_seed(seed)

wave = torch.sin(torch.arange(0, 40, 0.5)) + 0.1 * torch.randn(80)
windows = wave.unfold(0, 9, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(windows[:, :8]), windows[:, 8:]).backward()
    optimizer.step()
