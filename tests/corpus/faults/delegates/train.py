import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from tasks import rank


def main():
    import torch
    from torch import nn

    for name in ("PYTHONHASHSEED", "PYTHONPATH"):
        os.environ.pop(name, None)
    labels = [[f"class {(n * k) % 9}" for k in range(24)] for n in range(1, 7)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        targets = torch.tensor(list(pool.map(rank, labels)))
    torch.manual_seed(113)
    inputs = torch.randn(6, 24, 5)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
