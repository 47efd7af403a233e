import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

with open("/dev/shm/feed-of-prices.txt") as file:  # HERE
    prices = [float(line) for line in file][-46:]
torch.manual_seed(103)
windows = torch.tensor(prices).diff().unfold(0, 6, 1)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(windows), batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[:, :5]), batch[:, 5:]).backward()
    optimizer.step()
