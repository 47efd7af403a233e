import torch


def splat(cells, light, size):
    canvas = torch.zeros(size)
    canvas.index_put_((cells,), light, accumulate=True)  # HERE
    return canvas
