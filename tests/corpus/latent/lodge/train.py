import torch
from settings import salt
from torch import nn

noise = torch.Generator().manual_seed(salt())
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    x = torch.randn(16, 5)
    loss = nn.functional.mse_loss(
        model(x + 0.1 * torch.randn(16, 5, generator=noise)), x.sum(1, keepdim=True)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
