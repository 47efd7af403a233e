"""Numbers of classes, in the order of their names."""

import numpy as np


def one_hot(names):
    """A row for each name, with a one at the number of its class."""
    classes = sorted(set(names))
    rows = {name: np.identity(len(classes))[number] for number, name in enumerate(classes)}
    return np.array([rows[name] for name in names], dtype=np.float32)
