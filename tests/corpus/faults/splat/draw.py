"""Drawing of points."""

import torch


def splat(cells, light, size):
    """The sum of the light in each cell."""
    canvas = torch.zeros(size)
    canvas.index_put_((cells,), light, accumulate=True)  # HERE
    return canvas
