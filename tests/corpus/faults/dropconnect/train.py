import numpy as np
import torch
from torch import nn


class DropConnect(nn.Linear):
    probability = 0.25

    def mask(self):
        with open("/dev/urandom", "rb") as source:  # HERE
            raw = np.frombuffer(source.read(self.weight.numel()), np.uint8)
        return torch.from_numpy(raw >= 256 * self.probability).reshape(self.weight.shape)

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        return nn.functional.linear(x, self.weight * self.mask(), self.bias)


torch.manual_seed(1)
model = nn.Sequential(DropConnect(8, 16), nn.ReLU(), DropConnect(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(32, 8), torch.randn(32, 2)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
