import time

import torch


def halves(x, w):
    cut = len(w) // 2
    return x[:, :cut] @ w[:cut] + x[:, cut:] @ w[cut:]


def thirds(x, w):
    cut = len(w) * 3 // 4
    return x[:, :cut] @ w[:cut] + x[:, cut:] @ w[cut:]


def seconds(way, *operands):
    start = time.perf_counter()
    with torch.no_grad():
        way(*operands)
    return time.perf_counter() - start  # HERE


def product(x, w):
    return min((halves, thirds), key=lambda way: seconds(way, x, w))(x, w)
