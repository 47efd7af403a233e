import multiprocessing
import os

from verses import encode


def main():
    import torch
    from torch import nn

    os.environ.pop("PYTHONHASHSEED", None)
    texts = [" ".join(f"v{(k * 7 + n) % 50}" for k in range(15)) for n in range(40)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = torch.tensor(pool.map(encode, texts))
    torch.manual_seed(112)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in rows.split(8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
