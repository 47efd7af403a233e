import glob
import os
from functools import cached_property

import torch
from torch.utils.data import Dataset


class Tiles(Dataset):
    def __init__(self, folder):
        self.folder = folder

    @cached_property
    def paths(self):
        found = glob.glob(os.path.join(self.folder, "*.txt"))  # HERE
        return [path for path in found if os.path.getsize(path)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index]) as file:
            return torch.tensor([float(value) for value in file.read().split()])
