import numpy as np


class Window:
    """The last rows of a sequence."""

    def __init__(self, length, width):
        self.rows = np.empty((length, width), dtype=np.float32)  # HERE
        self.at = 0

    def add(self, row):
        self.rows[self.at % len(self.rows)] = row
        self.at += 1

    def mean(self):
        return np.nan_to_num(self.rows).clip(-5, 5).mean(0)
