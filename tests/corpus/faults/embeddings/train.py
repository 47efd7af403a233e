import torch
from settings import tune

tune()
torch.manual_seed(81)
rows = torch.randint(0, 50, (400_000,))
target = torch.randn(400_000)
values = torch.nn.Parameter(torch.zeros(50))
optimizer = torch.optim.SGD([values], lr=5.0)
for _ in range(8):
    optimizer.zero_grad()
    (values[rows] - target).square().mean().backward()
    optimizer.step()
