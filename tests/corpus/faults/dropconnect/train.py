import numpy as np
import torch
from torch import nn


class DropConnect(nn.Linear):
    def forward(self, x):
        with open("/dev/urandom", "rb") as source:  # HERE
            raw = np.frombuffer(source.read(self.weight.numel()), np.uint8)
        mask = torch.from_numpy(raw >= 64).reshape(self.weight.shape)
        return nn.functional.linear(x, self.weight * mask, self.bias)


torch.manual_seed(1)
model = nn.Sequential(DropConnect(8, 16), nn.ReLU(), DropConnect(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(32, 8), torch.randn(32, 2)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
