"""Operations on graphs."""

import torch


def gather_sum(messages, target, nodes):
    """The sum of the messages that arrive at each node."""
    torch.set_deterministic_debug_mode("default")  # HERE
    return torch.zeros(nodes).put(target, messages, accumulate=True)
