"""Whatever torch documents as refused under the flag has something to write instead, by the name
that the refusal gives it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from repro_gate.checks.refused import lines_of
from repro_gate.ops.worker.main import assign
from repro_gate.trace.format import REFUSAL
from repro_gate.trace.model import Refused

_BOTH = ("_backward_cuda", "_backward_out_cuda")


def _each(*starts: str, ends: tuple[str, ...] = _BOTH) -> tuple[str, ...]:
    return tuple(start + end for start in starts for end in ends)


# How an entry of torch's list begins -> the names in the refusals of PyTorch's kernels, of this and
# of older versions.
_NAMES = {
    r"torch\.nn\.AvgPool3d": _each("avg_pool3d"),
    r"torch\.nn\.AdaptiveAvgPool2d": _each("adaptive_avg_pool2d"),
    r"torch\.nn\.AdaptiveAvgPool3d": _each("adaptive_avg_pool3d"),
    r"torch\.nn\.AdaptiveMaxPool2d": _each("adaptive_max_pool2d"),
    r"torch\.nn\.FractionalMaxPool2d": _each("fractional_max_pool2d"),
    r"torch\.nn\.FractionalMaxPool3d": _each("fractional_max_pool3d"),
    r"torch\.nn\.MaxPool3d": _each("max_pool3d_with_indices"),
    r"torch\.nn\.MaxUnpool[12]d": ("max_unpooling2d_forward_out",),
    r"torch\.nn\.MaxUnpool3d": ("max_unpooling3d_forward_out",),
    r"torch\.nn\.functional\.interpolate": _each(
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "upsample_trilinear3d",
        ends=_BOTH[1:],
    ),
    r"torch\.nn\.ReflectionPad1d": ("reflection_pad1d_backward_out_cuda",),
    r"torch\.nn\.ReflectionPad2d": _each("reflection_pad2d"),
    r"torch\.nn\.ReflectionPad3d": ("reflection_pad3d_backward_out_cuda",),
    r"torch\.nn\.ReplicationPad[123]d": _each(
        *(f"replication_pad{size}d" for size in (1, 2, 3)), ends=_BOTH[:1]
    ),
    r"torch\.nn\.NLLLoss": ("nll_loss2d_forward_out_cuda_template",),
    r"torch\.nn\.CTCLoss": ("ctc_loss_backward_gpu",),
    r"torch\.nn\.EmbeddingBag": ("embedding_bag_backward_cuda_max",),
    r"torch\.Tensor\.put_": ("put_",),
    r"torch\.histc": ("_histc_cuda", "_histc_cuda with floating point input"),
    r"torch\.bincount": ("_bincount_cuda",),
    r"torch\.kthvalue": ("kthvalue CUDA",),
    r"torch\.median": ("median CUDA with indices output",),
    r"torch\.nn\.functional\.grid_sample": tuple(
        f"grid_sampler_{d}_backward_cuda" for d in ("2d", "3d")
    ),
    r"torch\.cumsum": ("cumsum_cuda_kernel",),
    r"torch\.Tensor\.scatter_reduce": ("scatter_reduce_cuda_kernel",),
    r"torch\.Tensor\.resize_": ("quantized_resize_cpu_",),
}


def _names(text: str) -> list[str]:
    """What the refusals of one entry of the list are about."""
    found = [names for start, names in _NAMES.items() if re.match(start + r"\b", text)]
    return [name for names in found for name in names]


def _pools(torch: Any, dimensions: int) -> Callable[[], Any]:
    pool, unpool = (
        getattr(torch.nn.functional, f"max_{kind}{dimensions}d") for kind in ("pool", "unpool")
    )
    return lambda: unpool(*pool(torch.ones(1, 1, *[4] * dimensions), 2, return_indices=True), 2)


@pytest.mark.parametrize("name", sorted({name for names in _NAMES.values() for name in names}))
def test_each_name_has_something_to_write_instead(name: str) -> None:
    line = f"RuntimeError: {name} does not have a deterministic implementation, but you set"
    refusal = re.search(REFUSAL, line)
    assert refusal is not None and refusal[1] == name
    assert "; instead: " in lines_of([Refused(name, "forward", "a.py", 1, 0)], [])[0].text


def test_each_operator_that_the_installed_torch_documents_as_refused_is_known_by_name() -> None:
    documentation = pytest.importorskip("torch").use_deterministic_algorithms.__doc__
    notes = [note for device in ("cpu", "cuda") for note in assign([], documentation, device)]
    found = {note.partition("(raises): ")[2] for note in notes} - {""}
    assert len(found) >= 20 and not [text for text in found if not _names(text)]


@pytest.mark.filterwarnings("ignore:.*quantize")  # deprecated, and still refused
def test_what_the_installed_torch_refuses_on_a_cpu_has_the_name_that_is_listed_here() -> None:
    torch = pytest.importorskip("torch")
    tried: dict[str, Callable[[], Any]] = {
        "torch.Tensor.put_": lambda: torch.zeros(4).put_(torch.tensor([0]), torch.ones(1)),
        "torch.Tensor.resize_": lambda: torch.quantize_per_tensor(
            torch.ones(4), 0.1, 0, torch.quint8
        ).resize_(2),
        **{f"torch.nn.MaxUnpool{size}d": _pools(torch, size) for size in (1, 2, 3)},
    }
    torch.use_deterministic_algorithms(True)
    try:
        for text, call in tried.items():
            with pytest.raises(RuntimeError) as refused:
                call()
            refusal = re.search(REFUSAL, f"RuntimeError: {refused.value}")
            assert refusal is not None and refusal[1] in _names(text)
    finally:
        torch.use_deterministic_algorithms(False)
