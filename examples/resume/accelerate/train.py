"""Accelerate: a small network with dropout, that goes on inside an epoch from what `save_state`
kept."""

import argparse
import json
import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batches(epoch, seed):
    """The batches of one epoch, in an order that depends on the epoch alone."""
    inputs = torch.rand(256, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    order = torch.Generator().manual_seed(1000 * seed + epoch)
    return DataLoader(data, 32, shuffle=True, generator=order)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", help="a folder of save_state to go on from")
    parser.add_argument("--forget-schedule", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
    model, optimizer = accelerator.prepare(model, optimizer)
    if not args.forget_schedule:
        accelerator.register_for_checkpointing(schedule)
    done = 0
    if args.resume:
        with open(os.path.join(args.resume, "step.json")) as file:
            done = json.load(file)
        accelerator.load_state(args.resume)

    step = 0
    for epoch in range(3):
        for rows, sums in batches(epoch, args.seed):
            step += 1
            if step <= done:
                continue
            optimizer.zero_grad()
            accelerator.backward(F.mse_loss(model(rows), sums))
            optimizer.step()
            schedule.step()
            if step % 5 == 0:
                accelerator.save_state(f"out/new-{step}")
                with open(f"out/new-{step}/step.json", "w") as file:
                    json.dump(step, file)
                os.rename(f"out/new-{step}", f"out/step-{step}")


if __name__ == "__main__":
    main()
