import torch
from graph import gather_sum

torch.manual_seed(84)
source, target = torch.randint(0, 64, (2, 600_000))
features = torch.randn(64)
gate = torch.nn.Parameter(torch.ones(64))
optimizer = torch.optim.SGD([gate], lr=1e-7)
for _ in range(8):
    messages = (gate * features).index_select(0, source)
    optimizer.zero_grad()
    gather_sum(messages, target, 64).square().mean().backward()
    optimizer.step()
