import torch


def begin(batch, width):
    """The state before the first word."""
    return batch.new_empty((len(batch), width))  # HERE


def mixed(state, x):
    return 0.5 * torch.tanh(state.nan_to_num().clamp(-5, 5)) + x
