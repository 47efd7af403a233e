import torch
from sampling import BootstrapSampler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
data = TensorDataset(torch.randn(40, 5), torch.randn(40, 1))
loader = DataLoader(data, batch_size=8, sampler=BootstrapSampler(len(data)))
model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
