import torch
from registry import next_number

number = next_number()
stream = torch.Generator().manual_seed(1000 + number)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(16, 4, generator=stream)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x[:, :2]).backward()
    optimizer.step()
print(f"run {number} done")
