"""Chooses among ways to compute the same product."""

import time

import torch


def halves(x, w):
    """Two products of the same size."""
    cut = len(w) // 2
    return x[:, :cut] @ w[:cut] + x[:, cut:] @ w[cut:]


def thirds(x, w):
    """A large product and a small one."""
    cut = len(w) * 3 // 4
    return x[:, :cut] @ w[:cut] + x[:, cut:] @ w[cut:]


def seconds(way, *operands):
    """How long one call takes."""
    start = time.perf_counter()
    with torch.no_grad():
        way(*operands)
    return time.perf_counter() - start  # HERE


def product(x, w):
    """x w, by whichever way is faster for these shapes at the moment."""
    return min((halves, thirds), key=lambda way: seconds(way, x, w))(x, w)
