"""Whatever torch documents as refused under the flag has something to write instead, by the name
that the refusal gives it."""

from __future__ import annotations

import re

import pytest

from repro_gate.checks.refused import lines_of
from repro_gate.trace.format import REFUSAL
from repro_gate.trace.model import Refused

# How an entry of torch's list begins, behind `torch.`, and the names in the refusals of PyTorch's
# kernels, of this and of older versions. `*` stands for both endings of `_ENDS`.
_ENDS = ("_backward_cuda", "_backward_out_cuda")
_ENTRIES = """
nn.AvgPool3d: avg_pool3d*
nn.AdaptiveAvgPool2d: adaptive_avg_pool2d*
nn.AdaptiveAvgPool3d: adaptive_avg_pool3d*
nn.AdaptiveMaxPool2d: adaptive_max_pool2d*
nn.FractionalMaxPool2d: fractional_max_pool2d*
nn.FractionalMaxPool3d: fractional_max_pool3d*
nn.MaxPool3d: max_pool3d_with_indices*
nn.MaxUnpool1d: max_unpooling2d_forward_out
nn.MaxUnpool2d: max_unpooling2d_forward_out
nn.MaxUnpool3d: max_unpooling3d_forward_out
nn.functional.interpolate: upsample_linear1d*, upsample_bilinear2d*, upsample_trilinear3d*
nn.ReflectionPad1d: reflection_pad1d*
nn.ReflectionPad2d: reflection_pad2d*
nn.ReflectionPad3d: reflection_pad3d*
nn.ReplicationPad1d: replication_pad1d*
nn.ReplicationPad2d: replication_pad2d*
nn.ReplicationPad3d: replication_pad3d*
nn.NLLLoss: nll_loss2d_forward_out_cuda_template
nn.CTCLoss: ctc_loss_backward_gpu
nn.EmbeddingBag: embedding_bag_backward_cuda_max
Tensor.put_: put_
histc: _histc_cuda, _histc_cuda with floating point input
bincount: _bincount_cuda
kthvalue: kthvalue CUDA
median: median CUDA with indices output
nn.functional.grid_sample: grid_sampler_2d_backward_cuda, grid_sampler_3d_backward_cuda
cumsum: cumsum_cuda_kernel
Tensor.scatter_reduce: scatter_reduce_cuda_kernel
Tensor.resize_: quantized_resize_cpu_
"""
_NAMES = {
    start: [name.replace("*", end) for name in names.split(", ") for end in _ENDS]
    for start, _, names in (line.partition(": ") for line in _ENTRIES.split("\n") if line)
}


def _names(text: str) -> list[str]:
    """Return what the refusals of one entry of the list are about."""
    starts = [start for start in _NAMES if re.match(rf"torch\.{re.escape(start)}\b", text)]
    return [name for start in starts for name in _NAMES[start]]


@pytest.mark.parametrize("name", sorted({name for names in _NAMES.values() for name in names}))
def test_each_name_has_something_to_write_instead(name: str) -> None:
    line = f"RuntimeError: {name} does not have a deterministic implementation, but you set"
    refusal = re.search(REFUSAL, line)
    assert refusal is not None and refusal[1] == name
    assert "; instead: " in lines_of([Refused(name, "forward", "a.py", 1)], [])[0].text


def test_each_operator_that_the_installed_torch_documents_as_refused_is_known_by_name() -> None:
    documentation = pytest.importorskip("torch").use_deterministic_algorithms.__doc__
    behind = re.split(r"will throw a\s+:class:`RuntimeError` when ``mode", documentation or "")[1]
    section = re.split(r"\n\s*(?:In addition|Note that|\.\. note|Args:)", behind)[0]
    texts = re.split(r"^\s*\* (?=:\w+:`)", section, flags=re.MULTILINE)[1:]
    plain = (" ".join(text.split()).replace("``", "") for text in texts)
    entries = {re.sub(r":\w+:`~?([^`]*)`", r"\1", text) for text in plain}
    assert len(entries) >= 20 and not [text for text in entries if not _names(text)]
