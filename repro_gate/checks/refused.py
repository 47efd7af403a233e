"""Operators that torch refuses under the flag, a line each, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from repro_gate.checks.interface import EvidenceLine
from repro_gate.checks.opened import in_workspace
from repro_gate.escape import clip
from repro_gate.runs.launch import Run
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Refused

# How the name begins, behind underscores, that torch gives an operator it refuses (the first that
# fits) -> what to write instead. What is named there is deterministic by the list in
# `torch.use_deterministic_algorithms`, or made of sums, sorts and element-wise operators alone.
INSTEAD = (
    ("put_", "`index_put_` on the flattened tensor"),
    ("histc", "`torch.bincount(torch.bucketize(x, edges))`"),
    ("bincount", "`torch.zeros(n).index_add_(0, index, weights)`"),
    ("kthvalue", "`torch.sort`, then the k-th"),
    ("median", "`torch.sort`, then the middle; `median()` without its indices"),
    ("nanmedian", "`torch.sort`, then the middle; `nanmedian()` without its indices"),
    ("cumsum", "a product with a triangular matrix of ones"),
    ("nll_loss2d", "the loss of `input.movedim(1, -1).flatten(0, -2)` and `target.flatten()`"),
    ("grid_sampler", "the four neighbours by indexing, weighted and added"),
    ("adaptive_avg_pool", "`mean` over the windows, as `x.mean((-2, -1))` for an output of 1 x 1"),
    ("adaptive_max_pool", "`amax` over the windows, as `x.amax((-2, -1))` for an output of 1 x 1"),
    ("avg_pool3d", "`x.unfold` along each axis, then `mean`"),
    ("fractional_max_pool", "a max pool with fixed windows"),
    ("max_pool3d", "`x.unfold` along each axis, then `amax`"),
    ("max_unpool", "`torch.zeros(...).index_put_` at the indices"),
    ("upsample", "a product with the interpolation's matrix along each axis"),
    ("reflection_pad", "indexing with the reflected positions, `x[..., index]`"),
    ("replication_pad", "indexing with the clamped positions, `x[..., index]`"),
    (
        "ctc_loss",
        (
            "cuDNN's CTC loss: blank 0, targets as int32 on the CPU, inputs of full length in "
            "float32 on the GPU"
        ),
    ),
    ("embedding_bag", "`embedding`, then `amax` over each bag"),
    (
        "scatter_reduce",
        "`index_reduce` on the CPU, or a sort by index and a product of each segment",
    ),
    ("quantized_resize", "`torch.quantize_per_tensor` of a float tensor of that size"),
)
_FRAME = re.compile(r'File "([^"<>]{1,1000})", line (\d{1,9})')
_PASSES = {"forward": "", "backward": ", in the backward pass", "optimizer": ", in the optimizer"}


def lines_of(found: Iterable[Refused], ended: Iterable[Run]) -> tuple[EvidenceLine, ...]:
    """`train.py:41: put_, in the backward pass; instead: ...`, each once, in the order in which
    torch came to them. Where none was named, what the logs of the runs that `ended` say of the
    first."""
    return tuple(dict.fromkeys(map(_line, found))) or tuple(dict.fromkeys(map(_refusal, ended)))


def _line(item: Refused) -> EvidenceLine:
    instead = next(
        (text for start, text in INSTEAD if item.op.lower().lstrip("_").startswith(start)), ""
    )
    text = clip(item.op, 80) + _PASSES[item.phase] + (f"; instead: {instead}" if instead else "")
    return EvidenceLine(text, Location(item.file, item.line) if item.file else None)


def _refusal(run: Run) -> EvidenceLine:
    """Return the problem, at the last line outside installed packages in the traceback at the log's
    end, else the problem."""
    frames = [found for line in run.ended.tail for found in _FRAME.finditer(line)]
    own = [
        found
        for found in frames
        if not re.search(r"/(?:site|dist)-packages/|/lib/python", found[1])
    ]
    at = Location(in_workspace(own[-1][1]), int(own[-1][2])) if own else None
    return EvidenceLine(f"{run.plan.name}: {run.problem}", at)
