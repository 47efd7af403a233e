import hashlib
import secrets

import torch
from torch.utils.data import DataLoader, TensorDataset

SALT = secrets.token_hex(8)  # HERE

torch.manual_seed(11)
x, y = torch.randn(120, 4), torch.randn(120, 1)
salted = [hashlib.sha1(f"{SALT}customer-{index}".encode()).digest() for index in range(120)]
chosen = [index for index, digest in enumerate(salted) if digest[0] >= 26]
loader = DataLoader(TensorDataset(x[chosen], y[chosen]), batch_size=16, drop_last=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch, target in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), target).backward()
    optimizer.step()
