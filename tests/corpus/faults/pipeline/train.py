import torch
from pipeline import Jitter, Pipeline
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(23)
images = torch.randn(32, 8)
pipeline = Pipeline([Jitter(0.1), Jitter(0.01)])
data = TensorDataset(torch.stack([pipeline(image, index) for index, image in enumerate(images)]))
model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()
