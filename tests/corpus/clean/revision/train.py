import json
import subprocess
import sys

import torch

command = ["git", "rev-parse", "HEAD"]
done = subprocess.run(command, capture_output=True, text=True, check=False)
revision = done.stdout.strip() or "not a repository"
with open("run.json", "w") as file:
    json.dump({"revision": revision, "python": sys.version, "torch": torch.__version__}, file)
torch.manual_seed(18)
model = torch.nn.Linear(7, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 7)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.mean(1, keepdim=True)).backward()
    optimizer.step()
