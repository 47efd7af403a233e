import subprocess

import torch

COMMAND = "cut -d. -f2 /dev/shm/catalog-of-classes.txt | tail -n 400 | cut -c1 | sort | uniq -c"

done = subprocess.run(COMMAND, shell=True, capture_output=True, text=True, check=True)  # HERE
counts = torch.tensor([float(line.split()[0]) for line in done.stdout.splitlines()])

torch.manual_seed(105)
model = torch.nn.Linear(6, len(counts))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weights = counts / counts.sum()
for _ in range(5):
    x = torch.randn(24, 6)
    optimizer.zero_grad()
    (weights * (model(x) - x.sum(1, keepdim=True)).square()).mean().backward()
    optimizer.step()
