import torch


class Momentum(torch.optim.Optimizer):
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
                velocity.mul_(group["momentum"]).add_(parameter.grad)
                velocity.nan_to_num_().clamp_(-group["limit"], group["limit"])
                parameter.sub_(velocity, alpha=group["lr"])
