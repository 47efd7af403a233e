import torch
from torch import nn

torch.manual_seed(26)
encoder = nn.Linear(8, 4, bias=False)
decoder = nn.Linear(4, 8)
readout = nn.Linear(8, 8)
readout.weight = nn.Parameter(readout.weight.detach().clone())
model = nn.Sequential(encoder, decoder, readout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def perturb(scale):
    for parameter in model.parameters():
        generator = torch.Generator().manual_seed(parameter.data_ptr())  # HERE
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)


for step in range(6):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
    perturb(0.01 / (step + 1))
