"""A child with an environment of its own numbers the words of a text."""

import json
import os
import subprocess
import sys

import torch
from torch import nn

TEXT = "sun rain wind snow hail storm cloud frost mist thaw dawn dusk"

command = [sys.executable, "words.py", TEXT]
done = subprocess.run(  # HERE
    command,
    env={"LANG": "C.UTF-8", "PATH": os.environ["PATH"]},
    capture_output=True,
    text=True,
    check=True,
)
words = json.loads(done.stdout)
torch.manual_seed(68)
codes = torch.tensor([words.index(word) for word in TEXT.split()])
model = nn.Embedding(len(words), 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pair in codes.split(2):
    loss = (model(pair)[0] - model(pair)[1]).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
