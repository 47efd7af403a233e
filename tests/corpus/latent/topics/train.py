import json
import subprocess
import sys

import torch

TEXT = "sun rain wind snow hail storm cloud frost mist thaw dawn dusk"

done = subprocess.run([sys.executable, "topics.py", TEXT], stdout=subprocess.PIPE, check=True)
topics = json.loads(done.stdout)
torch.manual_seed(15)
codes = torch.tensor([topics.index(word) for word in TEXT.split()])
model = torch.nn.Embedding(len(topics), 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pair in codes.split(2):
    optimizer.zero_grad()
    (model(pair)[0] - model(pair)[1]).square().sum().backward()
    optimizer.step()
