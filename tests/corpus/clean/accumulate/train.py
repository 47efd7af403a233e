import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(13)
x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for number, (batch, target) in enumerate(loader, 1):
    (nn.functional.mse_loss(model(batch), target) / 4).backward()
    if number % 4 == 0:
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
