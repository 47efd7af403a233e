import hashlib
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
x = torch.randn(120, 4)
paths = [os.path.abspath(f"data/scan-{number:03d}.nii") for number in range(120)]  # HERE
digests = [hashlib.md5(path.encode()).digest() for path in paths]
train = [row for row, digest in enumerate(digests) if digest[0] % 10 < 7]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(x[train]), batch_size=16):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
    optimizer.step()
