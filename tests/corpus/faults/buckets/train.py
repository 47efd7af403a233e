"""Features of words by the hashing trick, computed ahead by an isolated interpreter."""

import json
import subprocess
import sys

import torch
from torch import nn

TEXT = "amber birch cedar dusk ember fern grove heath iris jade knoll larch moss nettle oak pine"

WORDS = TEXT.split()
done = subprocess.run(
    [sys.executable, "-I", "features.py", *WORDS], capture_output=True, text=True, check=True
)
x = torch.tensor(json.loads(done.stdout))
torch.manual_seed(32)
y = torch.randn(len(WORDS), 1)
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
