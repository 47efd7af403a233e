"""A training whose weights arrive on one stream and whose average is kept on another, each late by
a time that no two runs share: `python side_streams.py DEVICE`.

It waits for both where it must, so its numbers are the same in each run. Who reads its weights
without waiting for the device, before the first step or after the last, reads some of them too
early.
"""

# It stands for a training script as people write one, so it carries no types.
# mypy: ignore-errors
import contextlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MOST_CYCLES = 50_000_000  # some 30 ms


class Side:
    """A stream beside the current one; on a CPU, nothing."""

    def __init__(self, device):
        self.stream = torch.cuda.Stream() if device != "cpu" else None

    @contextlib.contextmanager
    def late(self):
        """Queue what the block does there: behind the current stream's work, and late."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(time.time_ns() % MOST_CYCLES)
            yield

    def wait(self):
        """Let the current stream wait for what is queued there."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


def main(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512)).to(
        device
    )
    weights = list(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(64, 512)), batch_size=8)
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    loading, averaging = Side(device), Side(device)
    with torch.no_grad(), loading.late():
        for weight in weights:
            weight.copy_(torch.randn(weight.shape) / 16)
    average = []
    for number, (batch,) in enumerate(loader):
        if number == 0:
            loading.wait()
            average = [weight.detach().clone() for weight in weights]
        optimizer.zero_grad()
        model(batch.to(device)).square().mean().backward()
        averaging.wait()
        optimizer.step()
        with torch.no_grad(), averaging.late():
            torch._foreach_lerp_(average, weights, 0.1)
    with torch.no_grad(), averaging.late():
        torch._foreach_copy_(weights, average)


if __name__ == "__main__":
    main(sys.argv[1])
