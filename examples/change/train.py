"""A small classifier of rows that are made here. The seed decides how it begins and in which order
it sees the rows."""

import argparse

import torch
from torch import nn

BATCH = 128
EPOCHS = 5  # of 16 steps


def rows(count, seed):
    """Return inputs and classes: the class is which of three noisy scores is the largest."""
    made = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, generator=made)
    noise = 0.3 * torch.randn(count, 3, generator=made)
    scores = inputs[:, :3] + inputs[:, 3:6] * inputs[:, 5:8] + noise
    return inputs, scores.argmax(dim=1)


def network():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))


def loss_of(scores, classes):
    """Return the mean cross-entropy."""
    right = scores.gather(1, classes[:, None])[:, 0]
    return (scores.logsumexp(dim=1) - right).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    inputs, classes = rows(2048, seed=0)
    held_out, expected = rows(4096, seed=1)
    torch.manual_seed(args.seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            loss = loss_of(model(inputs[chosen]), classes[chosen])
            loss.backward()
            optimizer.step()

    with torch.no_grad():
        scores = model(held_out)
        loss = loss_of(scores, expected)
    right = (scores.argmax(dim=1) == expected).double().mean()
    print(f"val_loss {loss:.4f} val_acc {100 * right:.1f}")


if __name__ == "__main__":
    main()
