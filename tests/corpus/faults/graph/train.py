import random

import torch
from nodes import Node, walk
from torch import nn

draw = random.Random(109)
nodes = [Node(draw.random()) for _ in range(40)]
for node in nodes:
    for other in draw.sample(nodes, 6):
        node.join(other)
torch.manual_seed(109)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for start in range(6):
    batch = torch.tensor([walk(nodes[start + k], 5) for k in range(8)])
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
