import time

import torch


def length():
    return 4 + int(time.time() // 86400) % 7  # HERE


torch.manual_seed(11)
model = torch.nn.Linear(12, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.zeros(16, 12)
    x[:, : length()] = torch.randn(16, length())
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
