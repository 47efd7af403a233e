"""How samples become a batch."""

import numpy as np
import torch


def collate(samples):
    """Put sequences one below the other; returns them and their lengths."""
    lengths = [len(sample) for sample in samples]
    padded = np.empty((len(samples), 128), np.float32)  # HERE
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return torch.from_numpy(np.nan_to_num(padded)), torch.tensor(lengths)
