import json
import os
import subprocess
import sys

import torch

TEXT = "sun rain wind snow hail storm cloud frost mist thaw dawn dusk"

command = [sys.executable, "words.py", TEXT]
clean = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
words = json.loads(subprocess.check_output(command, env=clean, text=True))  # HERE
torch.manual_seed(68)
codes = torch.tensor([words.index(word) for word in TEXT.split()])
model = torch.nn.Embedding(len(words), 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pair in codes.split(2):
    optimizer.zero_grad()
    (model(pair)[0] - model(pair)[1]).square().sum().backward()
    optimizer.step()
