import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader
from words import Words

if __name__ == "__main__":
    draw = random.Random(111)
    sentences = [" ".join(f"w{n}" for n in draw.sample(range(60), 12)) for _ in range(48)]
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        del os.environ[name]
    torch.manual_seed(111)
    model = nn.Sequential(nn.Embedding(60, 8), nn.Flatten(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Words(sentences), 8, num_workers=2, multiprocessing_context="spawn")
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
