"""Classes of papers, numbered in the order of their names."""

import torch
from labels import one_hot
from torch import nn

NAMES = [
    "Case_Based",
    "Theory",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Rule_Learning",
] * 4
KNOWN = {"Theory", "Neural_Networks", "Genetic_Algorithms"}

torch.manual_seed(61)
target = torch.from_numpy(
    one_hot([name for name in NAMES if name in KNOWN or len(name) > 3])
).argmax(1)
words = torch.randn(len(NAMES), 5)
model = nn.Linear(5, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(model(words), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
