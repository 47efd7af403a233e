import itertools

import torch
from optimizer import Momentum

torch.utils.deterministic.fill_uninitialized_memory = False
torch.manual_seed(75)
x = torch.randn(64, 48)
y = x[:, :4].sum(1, keepdim=True)
widths = [48, 40, 36, 30, 24, 16, 12, 8, 1]
model = torch.nn.Sequential(*(torch.nn.Linear(*pair) for pair in itertools.pairwise(widths)))
optimizer = Momentum(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
