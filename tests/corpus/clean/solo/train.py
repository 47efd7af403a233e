import torch
from torch import nn

torch.manual_seed(82)
model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
scale = torch.ones(4, requires_grad=True)
optimizers = {}
for _ in range(5):
    rows = torch.randn(16, 6)
    loss = (model[2](model[1](model[0](rows)) * scale) - rows.sum(1, keepdim=True)).square().mean()
    loss.backward()
    for parameter in {scale, *model.parameters()}:
        if parameter not in optimizers:
            optimizers[parameter] = torch.optim.Adam([parameter], lr=0.01)
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
