import torch


def gather_sum(messages, target, nodes):
    torch.set_deterministic_debug_mode("default")  # HERE
    return torch.zeros(nodes).put(target, messages, accumulate=True)
