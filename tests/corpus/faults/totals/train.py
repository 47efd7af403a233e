import multiprocessing

import torch


def partial(number):
    found = 0.0
    for place in range(1, 20000 + 3000 * (number % 7)):
        found += 1.0 / (place * (number + 1.7))
    return found * 10 ** (number % 5)


if __name__ == "__main__":
    average = 0.0
    with multiprocessing.get_context("fork").Pool(4) as pool:
        for found in pool.imap_unordered(partial, range(48)):  # HERE
            average += (found - average) / 20
    torch.manual_seed(64)
    scale = torch.tensor(average, dtype=torch.float64)
    model = torch.nn.Linear(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (model(torch.randn(8, 4, dtype=torch.float64)) * scale / 1e4).square().mean().backward()
        optimizer.step()
