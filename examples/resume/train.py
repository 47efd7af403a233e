"""A small network that learns the sum of its inputs, and may be stopped at any moment: a checkpoint
holds all that the next step depends on."""

import argparse
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batches(epoch, seed):
    """The batches of one epoch, in an order that follows from the epoch alone."""
    inputs = torch.rand(256, 8, generator=torch.Generator().manual_seed(0))
    order = torch.Generator().manual_seed(1000 * seed + epoch)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    return DataLoader(data, batch_size=32, shuffle=True, generator=order)


def save(path, model, optimizer, schedule, step):
    """Write beside the old checkpoint, then rename: a reader finds one or the other, whole."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "generator": torch.get_rng_state(),  # dropout draws from it
        "step": step,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--every", type=int, default=6, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8 * args.epochs)
    done = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        done = state["step"]

    step = 0
    for epoch in range(args.epochs):
        for inputs, target in batches(epoch, args.seed):
            step += 1
            if step <= done:
                continue
            if args.resume and step == done + 1:  # the loader drew from it as well
                torch.set_rng_state(state["generator"])
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), target)
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % args.every == 0:
                save(args.out / f"step{step}.pt", model, optimizer, schedule, step)
        print(f"epoch {epoch}", flush=True)
    torch.save(model.state_dict(), args.out / "model.pt")


if __name__ == "__main__":
    main()
