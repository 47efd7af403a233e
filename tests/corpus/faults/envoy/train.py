import multiprocessing
import os

from envoy import send


def main():
    import torch
    from torch import nn

    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    del os.environ["PYTHONHASHSEED"]
    names = [f"sample-{number}" for number in range(48)]
    worker = context.Process(target=send, args=(names, there))
    worker.start()
    order = torch.tensor([names.index(name) for name in here.recv()])
    worker.join()
    torch.manual_seed(114)
    rows = torch.randn(48, 6)[order]
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in rows.split(8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
