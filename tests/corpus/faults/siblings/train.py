import torch
from torch import nn

torch.manual_seed(81)
encoder, first, second = nn.Linear(6, 4), nn.Linear(4, 1), nn.Linear(4, 1)
second.weight = first.weight
model = nn.ModuleList([encoder, first, second])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scales = {parameter: 1 / parameter.numel() for parameter in model.parameters()}
for _ in range(5):
    features = encoder(torch.randn(8, 6)).relu()
    loss = (first(features) - 1).square().mean() + (second(features) + 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    shared = {p for layer in model for p in layer.parameters()}  # HERE
    for parameter in shared:
        parameter.grad += 0.1 * scales[parameter] * torch.randn_like(parameter)
    optimizer.step()
