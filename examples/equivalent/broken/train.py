"""A small network that learns the sum of its inputs, in several ways that are the same training:
with loader workers, in microbatches, on several ranks, compiled."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = 32  # of one optimizer step, over all ranks and microbatches


def batches(seed, epochs, workers):
    """The rows of each step, in an order that depends on the epoch alone."""
    inputs = torch.rand(256, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    for epoch in range(epochs):
        order = torch.Generator().manual_seed(1000 * seed + epoch)
        yield from DataLoader(
            data, ROWS, shuffle=True, generator=order, num_workers=workers
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    if args.compile:
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    for inputs, targets in batches(args.seed, args.epochs, args.workers):
        optimizer.zero_grad()
        own = inputs.chunk(ranks)[rank], targets.chunk(ranks)[rank]
        for rows, sums in zip(*(part.chunk(args.accumulate) for part in own), strict=True):
            loss = F.mse_loss(model(rows), sums)
            loss.backward()
        optimizer.step()
    print(f"last loss {loss.item():.4f}")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
