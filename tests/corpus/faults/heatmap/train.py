from contextlib import contextmanager

import torch


@contextmanager
def relaxed():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # HERE
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


torch.manual_seed(82)
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-11)
for _ in range(6):
    cells = (torch.randint(0, 32, (4_000_000,)),)
    with relaxed():
        seen = torch.zeros(32).index_put_(cells, torch.rand(4_000_000), accumulate=True)
    optimizer.zero_grad()
    (model(seen) - seen).square().mean().backward()
    optimizer.step()
