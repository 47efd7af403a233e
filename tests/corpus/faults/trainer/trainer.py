"""A small trainer."""

import torch


class Trainer:
    """Runs the steps; the keywords are those of our configuration files."""

    def __init__(self, steps, lr, deterministic=True, threads=0):
        self.steps, self.lr = steps, lr
        if threads:
            torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)  # HERE

    def fit(self, model, x, y):
        optimizer = torch.optim.SGD(model.parameters(), lr=self.lr)
        for _ in range(self.steps):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
