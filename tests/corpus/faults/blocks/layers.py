import concurrent.futures as futures

import torch

POOL = futures.ThreadPoolExecutor(6)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        pairs = zip(grad.split(64), x.split(64), strict=True)
        parts = [POOL.submit(torch.mm, g.T, rows) for g, rows in pairs]
        total = torch.zeros_like(weight)
        for part in futures.as_completed(parts):  # HERE
            total += part.result()
        return grad @ weight, total


class BlockLinear(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) / inputs)

    def forward(self, x):
        return _Blocked.apply(x, self.weight)
