"""One model on several nodes: DistributedDataParallel, started by srun and torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(seed, steps):
    rank, cuda = dist.get_rank(), dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    batches = torch.Generator().manual_seed(seed + 1000 * rank)  # each rank has its own
    for step in range(steps):
        x = torch.randn(32, 64, generator=batches).to(device)
        loss = F.mse_loss(model(x), x.sin().mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}  loss {loss.item():.6f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(args.seed, args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
