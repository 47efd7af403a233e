import torch
from torch import nn

torch.manual_seed(12)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - x[:, :4]).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
