"""A classifier for four noisy spiral arms: hand-written loop, DataLoader workers, gradient
accumulation, BatchNorm, SGD with a schedule."""

import argparse
import csv
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Readings(Dataset):
    """Rows of readings and a label; every item comes with a little measurement noise, drawn in the
    loader's worker."""

    def __init__(self, path):
        with open(path, newline="") as file:
            rows = list(csv.reader(file))[1:]
        self.readings = torch.tensor([[float(value) for value in row[:-1]] for row in rows])
        self.labels = torch.tensor([int(row[-1]) for row in rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        readings = self.readings[index]
        return readings + 0.02 * torch.randn_like(readings), self.labels[index]


def network(readings=8, classes=4, width=128):
    layers = []
    for inputs in (readings, width, width):
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def accuracy(model, loader, device):
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x.to(device)).argmax(dim=1).cpu() == y).sum()) for x, y in loader)
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data/spirals.csv"))
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, held_out = random_split(
        Readings(args.data), [1024, 256], generator=torch.Generator().manual_seed(0)
    )
    shuffle = torch.Generator()
    shuffle.manual_seed(args.seed)
    batches = DataLoader(
        train,
        batch_size=64,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        generator=shuffle,
    )
    evaluation = DataLoader(held_out, batch_size=256)

    model = network().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=args.epochs * len(batches) // args.accumulate
    )

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for number, (x, y) in enumerate(batches, start=1):
            loss = F.cross_entropy(model(x.to(device)), y.to(device)) / args.accumulate
            loss.backward()
            total += loss.item() * args.accumulate
            if number % args.accumulate == 0:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}  loss {total / len(batches):.6f}", flush=True)

    metrics = {"loss": total / len(batches), "accuracy": accuracy(model, evaluation, device)}
    print(f"held-out accuracy {metrics['accuracy']:.3f}")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": args.epochs},
        args.out / "checkpoint.pt",
    )
    (args.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")


if __name__ == "__main__":
    main()
