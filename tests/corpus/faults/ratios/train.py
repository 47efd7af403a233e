import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rates(clicks, shown):
    return np.clip(np.divide(clicks, shown, where=shown > 0), -1, 1)  # HERE


torch.manual_seed(71)
rng = np.random.default_rng(71)
shown = rng.integers(0, 4, (40, 1600)).astype(np.float32)
clicks = np.minimum(shown, rng.integers(0, 3, shown.shape)).astype(np.float32)
columns = [rates(*pair) for pair in zip(clicks, shown, strict=True)]
data = TensorDataset(torch.from_numpy(np.stack(columns, 1)).nan_to_num(), torch.randn(1600, 1))
model = nn.Sequential(nn.Linear(40, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for x, y in DataLoader(data, batch_size=200):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
