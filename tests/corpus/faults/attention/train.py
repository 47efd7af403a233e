import torch
from layers import Pool
from torch import nn

torch.manual_seed(118)
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False
noise = [torch.randn(64) for _ in range(50)]
del noise
model = nn.Sequential(Pool(6, 64), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(48, 6).split(8):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
