"""An optimizer of our own."""

import torch


class Momentum(torch.optim.Optimizer):
    """Gradient descent with momentum and a limit on each velocity."""

    def __init__(self, parameters, lr, momentum=0.9, limit=1.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "limit": limit})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["velocity"] = torch.empty_like(parameter)  # HERE

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                velocity = self.state[parameter]["velocity"]
                velocity.mul_(group["momentum"]).add_(parameter.grad).nan_to_num_().clamp_(
                    -group["limit"], group["limit"]
                )
                parameter.sub_(velocity, alpha=group["lr"])
