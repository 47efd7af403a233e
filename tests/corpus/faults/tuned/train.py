import torch
from fast import product
from torch import nn


class Cut(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs)

    def forward(self, x):
        return product(x, self.weight)


torch.manual_seed(14)
model = nn.Sequential(*(Cut(64, 64) for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    x = torch.randn(32, 64)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
