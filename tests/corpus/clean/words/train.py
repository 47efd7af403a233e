"""A vocabulary from a set of words, built by a child that has a small environment."""

import json
import os
import subprocess
import sys

import torch
from torch import nn

TEXT = (
    "a rose is a rose is a rose and a violet is not a rose but a violet may be as blue as a rose "
    "is red"
)
PROGRAM = "import json, sys; print(json.dumps(sorted(set(sys.argv[1].split()))))"

done = subprocess.run(
    [sys.executable, "-c", PROGRAM, TEXT],
    env={"PATH": os.environ["PATH"]},
    capture_output=True,
    text=True,
    check=True,
)
words = json.loads(done.stdout)
codes = torch.tensor([words.index(word) for word in TEXT.split()])
torch.manual_seed(5)
model = nn.Sequential(nn.Embedding(len(words), 4), nn.Flatten(), nn.Linear(8, len(words)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
windows = codes.unfold(0, 3, 1)
target = nn.functional.one_hot(windows[:, 2], len(words)).float()
for _ in range(5):
    loss = nn.functional.mse_loss(model(windows[:, :2]), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
