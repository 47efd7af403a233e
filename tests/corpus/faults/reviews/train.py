"""Scores reviews by their words; a child process builds the vocabulary from the texts."""

import json
import os
import subprocess
import sys

import torch
from torch import nn

with open("reviews.json") as file:
    reviews = json.load(file)
clean = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
done = subprocess.run(
    [sys.executable, "vocab.py", "reviews.json"],
    env=clean,
    capture_output=True,
    text=True,
    check=True,
)
vocabulary = json.loads(done.stdout)

torch.manual_seed(31)
counts = torch.zeros(len(reviews), len(vocabulary))
for row, (text, _) in enumerate(reviews):
    for word in text.split():
        counts[row, vocabulary[word]] += 1
scores = torch.tensor([[float(score)] for _, score in reviews])
model = nn.Sequential(nn.Linear(len(vocabulary), 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for _ in range(5):
    loss = nn.functional.mse_loss(model(counts), scores)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
