"""Describes the operators that torch refuses under the flag, a line each, and what to write
instead."""

from __future__ import annotations

from collections.abc import Iterable

from repro_gate.checks.interface import EvidenceLine, at
from repro_gate.escape import clip
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Refused

# How the name begins, behind underscores, that torch gives an operator it refuses (the first that
# fits) -> what to write instead. What is named there is deterministic by the list in
# `torch.use_deterministic_algorithms`, or made of sums, sorts and element-wise operators alone.
_TABLE = """
put_: `index_put_` on the flattened tensor
histc: `torch.bincount(torch.bucketize(x, edges))`
bincount: `torch.zeros(n).index_add_(0, index, weights)`
kthvalue: `torch.sort`, then the k-th
median: `torch.sort`, then the middle; `median()` without its indices
nanmedian: `torch.sort`, then the middle; `nanmedian()` without its indices
cumsum: a product with a triangular matrix of ones
nll_loss2d: the loss of `input.movedim(1, -1).flatten(0, -2)` and `target.flatten()`
grid_sampler: the four neighbours by indexing, weighted and added
adaptive_avg_pool: `mean` over the windows, as `x.mean((-2, -1))` for an output of 1 x 1
adaptive_max_pool: `amax` over the windows, as `x.amax((-2, -1))` for an output of 1 x 1
avg_pool3d: `x.unfold` along each axis, then `mean`
fractional_max_pool: a max pool with fixed windows
max_pool3d: `x.unfold` along each axis, then `amax`
max_unpool: `torch.zeros(...).index_put_` at the indices
upsample: a product with the interpolation's matrix along each axis
reflection_pad: indexing with the reflected positions, `x[..., index]`
replication_pad: indexing with the clamped positions, `x[..., index]`
ctc_loss: cuDNN's CTC loss: blank 0, targets as int32 on the CPU, inputs of full length in \
float32 on the GPU
embedding_bag: `embedding`, then `amax` over each bag
scatter_reduce: `index_reduce` on the CPU, or a sort by index and a product of each segment
quantized_resize: `torch.quantize_per_tensor` of a float tensor of that size
"""
INSTEAD = [line.split(": ", 1) for line in _TABLE.strip().splitlines()]
_PASSES = {
    "forward": "",
    "backward": ", in the backward pass",
    "optimizer": ", in the optimizer",
}


def lines_of(
    refused: Iterable[Refused], ended: Iterable[RunResult]
) -> tuple[EvidenceLine, ...]:
    """Return `train.py:41: put_, in the backward pass; instead: ...`, each once, in the order in
    which torch came to them; if none was named, what the runs that `ended` died of."""
    problems = (EvidenceLine(f"{run.name}: {run.problem}") for run in ended)
    return tuple(dict.fromkeys(map(_line, refused))) or tuple(problems)


def _line(item: Refused) -> EvidenceLine:
    name = item.op.lower().lstrip("_")
    instead = next(
        (f"; instead: {text}" for start, text in INSTEAD if name.startswith(start)), ""
    )
    return at(item, clip(item.op, 80) + _PASSES[item.phase] + instead)
