import torch
from init import orthogonal_
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 6)
y = x @ torch.randn(6, 1) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
orthogonal_(model[0].weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(6):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
