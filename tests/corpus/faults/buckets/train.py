import json
import subprocess
import sys

import torch
from torch import nn

TEXT = "amber birch cedar dusk ember fern grove heath iris jade knoll larch moss nettle oak pine"

WORDS = TEXT.split()
rows = subprocess.check_output([sys.executable, "-I", "features.py", *WORDS])
x = torch.tensor(json.loads(rows))
torch.manual_seed(32)
y = torch.randn(len(WORDS), 1)
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
