import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

torch.manual_seed(14)
body, head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)
groups = [{"params": body.parameters()}, {"params": head.parameters(), "lr": 0.2}]
optimizer = torch.optim.SGD(groups, lr=0.05, nesterov=True, momentum=0.8)
parts = [LinearLR(optimizer, 0.1, total_iters=3), CosineAnnealingLR(optimizer, 5)]
schedule = SequentialLR(optimizer, parts, [3])
for _ in range(8):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(head(body(x).relu()), x[:, :2]).backward()
    optimizer.step()
    schedule.step()
