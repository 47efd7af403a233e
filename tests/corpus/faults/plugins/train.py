import torch
from registry import build
from torch import nn

torch.manual_seed(108)
model = build(6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(40, 6).split(8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
