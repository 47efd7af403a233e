import torch
from client import Work

torch.manual_seed(102)
data = torch.randn(256, 5)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Work("127.0.0.1", 47652) as work:
    for _ in range(6):
        start = work.next()
        rows = data[[(start + offset) % 256 for offset in range(16)]]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(rows[:, :4]), rows[:, 4:]).backward()
        optimizer.step()
