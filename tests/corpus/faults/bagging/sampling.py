import torch
from torch.utils.data import Sampler


class BootstrapSampler(Sampler):
    def __init__(self, size):
        self.size = size
        self.generator = torch.Generator()
        self.generator.seed()  # HERE

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(torch.randint(self.size, (self.size,), generator=self.generator).tolist())
