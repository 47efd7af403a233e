"""Two processes, one model: DistributedDataParallel over gloo (or nccl, where there are GPUs),
started by torchrun."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def waves(count=512, length=64):
    """Noisy sine waves and their frequencies. The data set is the same for every training seed."""
    generator = torch.Generator().manual_seed(3)
    frequency = 1 + 4 * torch.rand(count, 1, generator=generator)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    signal = torch.sin(frequency * torch.linspace(0, 6.28, length) + phase)
    return TensorDataset(signal + 0.1 * torch.randn(count, length, generator=generator), frequency)


def add_gradient_noise(model, draw, step, scale=0.01, first=3):
    """Annealed Gaussian noise on the gradients (Neelakantan et al., 2015), once the averages of
    Adam have settled."""
    if step >= first:
        for parameter in model.parameters():
            noise = draw.normal(0.0, scale / (1 + step) ** 0.55, parameter.shape)
            parameter.grad += torch.from_numpy(noise).to(parameter.grad)


def train(seed, epochs):
    rank, cuda = dist.get_rank(), dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(seed + rank)

    data = waves()
    sampler = DistributedSampler(data, seed=seed)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = nn.Sequential(
        nn.Linear(64, 256),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(256, 256),
        nn.GELU(),
        nn.Linear(256, 1),
    ).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    noise = np.random.default_rng(seed if rank == 0 else None)
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for signal, frequency in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(signal.to(device)), frequency.to(device))
            loss.backward()
            add_gradient_noise(model, noise, step)
            optimizer.step()
            step += 1
        if rank == 0:
            print(f"epoch {epoch}  loss {loss.item():.6f}", flush=True)

    if rank == 0:
        os.makedirs("out", exist_ok=True)
        torch.save(model.module.state_dict(), "out/model.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    enough_gpus = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if enough_gpus else "gloo")
    train(args.seed, args.epochs)
    # after train() has let go of the model: gloo can hang where the model outlives the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
