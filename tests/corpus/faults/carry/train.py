import torch
from cells import begin, mixed
from torch import nn

torch.manual_seed(119)
torch.utils.deterministic.fill_uninitialized_memory = False
model = nn.Linear(40, 40)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(48, 40).split(8):
    state = begin(batch, 40)
    for _ in range(3):
        state = mixed(state, model(batch))
    optimizer.zero_grad()
    state.square().mean().backward()
    optimizer.step()
