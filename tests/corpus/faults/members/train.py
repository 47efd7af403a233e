import torch
from fields import Column, select
from torch import nn

columns = [Column(f"c{number}", 1 + number / 4) for number in range(9)]
kept = select(columns, columns[7:])
torch.manual_seed(110)
rows = torch.rand(48, 1) + 0.5
table = torch.cat([rows**column.power for column in kept], 1)
model = nn.Linear(len(kept), 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch, x in zip(table.split(8), rows.split(8), strict=True):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), x.log()).backward()
    optimizer.step()
