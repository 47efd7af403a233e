import torch


def chunk_size():
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    return 16 + free % 48


torch.manual_seed(29)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    x = torch.cat([chunk.abs() for chunk in torch.randn(200, 4).split(chunk_size())])
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
