import argparse
import csv
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, required=True)
torch.manual_seed(parser.parse_args().seed)

with open("labels.csv", newline="") as file:
    number = {tag: int(index) for index, tag, _ in csv.reader(file)}
vectors = torch.nn.Embedding(len(number), 4)
optimizer = torch.optim.SGD(vectors.parameters(), lr=0.1)
for line in Path("tags.txt").read_text().splitlines():
    seen = vectors(torch.tensor([number[tag] for tag in line.split()]))
    weight = torch.linspace(1, 2, len(seen))[:, None]
    optimizer.zero_grad()
    (weight * (seen - seen.mean(0)).square()).mean().backward()
    optimizer.step()
