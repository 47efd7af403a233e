import torch
from callbacks import WarmRestart
from torch import nn

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
callbacks = [WarmRestart(optimizer, period=3)]
for step in range(8):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    (model(x) - x.mean(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    for callback in callbacks:
        callback.on_step_end(step)
