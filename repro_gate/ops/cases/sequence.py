"""What trains on sequences: attention kernels by name, recurrent layers, CTC loss, and cumulative
operators."""

from __future__ import annotations

from typing import Any, List

from ..case import Built, Case, Making

# cuDNN keeps the state of its dropout for each device, and `torch.manual_seed` does not seed it
# anew: between two executions of one process it has moved on, which says nothing of the kernel.
_OWN_STATE = "GRU (dropout)"
NOT_ON_CUDA = {
    "kernel/%s"
    % _OWN_STATE: "is not measured on CUDA: `torch.manual_seed` does not reset the dropout of cuDNN"
}
_KERNELS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")


def _attention(kernel: str, causal: bool) -> Any:
    def build(make: Making) -> Built:
        torch = make.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, kernel)

        def attend(query: Any, key: Any, value: Any) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=causal
                )

        # a GPU's kernels need several blocks to race, a CPU takes long for them
        length = make.n(128 if make.device == "cuda" else 64)
        return attend, [make.normal(2, 4, length, 64) for _ in range(3)]

    return build


def _recurrent(kind: str, length: int = 24, **kwargs: Any) -> Any:
    def build(make: Making) -> Built:
        layer = make.of(getattr(make.torch.nn, kind), 32, 64, batch_first=True, **kwargs)
        return layer, [make.normal(16, make.n(length), 32)]

    return build


def _transformer(make: Making) -> Built:
    layer = make.of(
        make.torch.nn.TransformerEncoderLayer, 64, 4, 128, dropout=0.0, batch_first=True
    )
    return layer, [make.normal(8, make.n(32), 64)]


def _ctc(make: Making) -> Built:
    """Targets with many equal neighbours, which share one place of the gradient."""
    torch, batch = make.torch, make.n(8)
    lengths = torch.full((batch,), 64, dtype=torch.int64)
    target_lengths = torch.full((batch,), 24, dtype=torch.int64)
    targets = make.index(5, batch, 24) + 1

    def loss(x: Any) -> Any:
        return torch.nn.functional.ctc_loss(
            x.log_softmax(2), targets, lengths, target_lengths, reduction="sum", zero_infinity=True
        )

    return loss, [make.normal(64, batch, 16)]


def _along(name: str, dimension: int, spread: float = 1.0) -> Any:
    """A cumulative operator along one dimension, long in it."""

    def build(make: Making) -> Built:
        x = make.normal(8, make.n(1 << 13)) if dimension else make.normal(make.n(1 << 16))
        if spread != 1.0:
            x = x.abs() * spread + 1 - spread  # a product of a million normal numbers is zero
        function = getattr(make.torch, name)
        return lambda x: function(x, -1), [x]

    return build


def cases() -> List[Case]:
    """Attention at two lengths, with and without a mask; recurrent layers in one and two
    directions."""
    found = []
    for kernel in _KERNELS:
        for causal in (False, True):
            name = "scaled_dot_product_attention (%s%s)" % (kernel, ", causal" if causal else "")
            found.append(Case(name, _attention(kernel, causal)))
    found += [
        Case("RNN", _recurrent("RNN")),
        Case("GRU", _recurrent("GRU")),
        Case("LSTM", _recurrent("LSTM")),
        Case(
            "LSTM (two layers, both directions)",
            _recurrent("LSTM", 4, num_layers=2, bidirectional=True),
        ),
        Case(_OWN_STATE, _recurrent("GRU", 4, num_layers=2, dropout=0.3), random=True),
        Case("TransformerEncoderLayer", _transformer),
        Case("ctc_loss", _ctc, entry=r"CTCLoss"),
    ]
    for name, spread in (
        ("cumsum", 1.0),
        ("cumprod", 1e-4),
        ("logcumsumexp", 1.0),
        ("cummax", 1.0),
    ):
        entry = r"cumsum" if name == "cumsum" else ""
        found += [
            Case(name, _along(name, 0, spread), entry=entry),
            Case("%s (rows)" % name, _along(name, 1, spread), entry=entry),
        ]
    found.append(Case("cumsum (integers)", _along("cumsum", 0), dtypes=("int64",), backward=False))
    return found
