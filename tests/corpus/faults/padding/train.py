import torch
from batches import collate
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(72)
sequences = [[round(0.1 * step, 1) for step in range(8 + 11 * number % 37)] for number in range(96)]
model = nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for padded, lengths in DataLoader(sequences, batch_size=16, collate_fn=collate):
    optimizer.zero_grad()
    (model(padded) - lengths[:, None] / 48).square().mean().backward()
    optimizer.step()
