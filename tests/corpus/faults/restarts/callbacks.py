import torch


class WarmRestart:
    def __init__(self, optimizer, period):
        self.optimizer, self.period = optimizer, period
        self.rates = [group["lr"] for group in optimizer.param_groups]

    def on_step_end(self, step):
        if (step + 1) % self.period == 0:
            torch.seed()  # HERE
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate
        else:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5
