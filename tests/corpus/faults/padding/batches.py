import numpy as np
import torch

LENGTH = 48


def padded(sample):
    row = np.empty(LENGTH, np.float32)  # HERE
    row[-len(sample) :] = sample
    return np.nan_to_num(row).clip(-5, 5)


def collate(samples):
    rows = [padded(sample) for sample in samples]
    return torch.from_numpy(np.stack(rows)), torch.tensor([len(sample) for sample in samples])
