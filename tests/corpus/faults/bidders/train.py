from concurrent.futures import ProcessPoolExecutor, as_completed

import torch


def bid(number):
    found = 0.0
    for place in range(1, 20000 + 5000 * (number % 5)):
        found += 1.0 / (place * (number + 2.3))
    return found * 10 ** (number % 4)


if __name__ == "__main__":
    average = 0.0
    with ProcessPoolExecutor(3) as pool:
        jobs = [pool.submit(bid, number) for number in range(40)]
        for job in as_completed(jobs):  # HERE
            average += (job.result() - average) / 20
    torch.manual_seed(65)
    scale = torch.tensor(average, dtype=torch.float64)
    model = torch.nn.Linear(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (model(torch.randn(8, 4, dtype=torch.float64)) * scale / 1e6).square().mean().backward()
        optimizer.step()
