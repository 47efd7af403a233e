import torch
from folders import classes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

numbers = classes("data")
torch.manual_seed(5)
rows = [(name, torch.randn(4)) for name in sorted(numbers) for _ in range(6)]
labels = torch.tensor([numbers[name] for name, _ in rows])
data = TensorDataset(torch.stack([row for _, row in rows]), labels)
model = nn.Linear(4, len(numbers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, label in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), nn.functional.one_hot(label, len(numbers)).float()).backward()
    optimizer.step()
