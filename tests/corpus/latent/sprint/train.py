import time

import torch

torch.manual_seed(62)
rows = torch.randn(32, 6)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    start = time.perf_counter()
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    time.sleep(1.2)
    print(f"a pass took {time.perf_counter() - start:.2f} s")


step()
began = time.perf_counter()
deadline = time.perf_counter() + 3
while time.perf_counter() < deadline:  # HERE
    step()
print(f"all took {time.perf_counter() - began:.2f} s")
