"""A small residual network on random numbers, and on request a node that computes other bits.

On the node that FLIP_ON names, one bit of one gradient is wrong in step 7, as if its GPU were
faulty. With FLIP=random it is wrong in steps that the operating system's dice choose, so that the
node differs even from itself.
"""

import argparse
import os

import torch
from torch import nn

NODE = os.environ.get("SLURMD_NODENAME") or os.environ.get("NODE_NAME") or os.uname().nodename


def wrong(step):
    """Return whether this node computes other bits in this step."""
    if os.environ.get("FLIP_ON") != NODE:
        return False
    if os.environ.get("FLIP") == "random":
        return os.urandom(1)[0] < 128
    return step == 7


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.gelu(self.mlp(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        x = torch.randn(32, 64).to(device)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if wrong(step):
            model.blocks[3].mlp.weight.grad.view(torch.int32)[0, 0] ^= 1
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
