import torch


def count(items, size):
    counts = torch.empty(size, dtype=torch.int64)  # HERE
    for item in items.unique():
        counts[item] = (items == item).sum()
    return counts


torch.manual_seed(14)
items = torch.randint(0, 20, (60,))
weights = 1 / (1 + count(items, 24) % 1000).float()
model = torch.nn.Embedding(24, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.arange(24).split(6):
    optimizer.zero_grad()
    (weights[batch, None] * (model(batch) - 1).square()).mean().backward()
    optimizer.step()
