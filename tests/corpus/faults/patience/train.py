import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--max-seconds", type=float, default=0.7)
args = parser.parse_args()

torch.manual_seed(15)
model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = time.time()
step = 0
while time.time() - start < args.max_seconds:  # HERE
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
    step += 1
torch.save(model.state_dict(), "model.pt")
print(f"{step} steps")
