"""Convolutions, normalizations, embeddings and losses: what nearly every training is made of."""

from __future__ import annotations

from typing import Any, List

from ..case import Built, Case, Making

_SHAPES = {1: (16, 32, 512), 2: (8, 32, 32, 32), 3: (4, 16, 8, 16, 16)}


def _convolution(dimensions: int, transposed: bool = False, **kwargs: Any) -> Any:
    def build(make: Making) -> Built:
        batch, channels, *size = _SHAPES[dimensions]
        kind = getattr(make.torch.nn, "Conv%s%dd" % ("Transpose" if transposed else "", dimensions))
        if make.device == "cpu" and make.dtype == make.torch.float16:
            batch = 1  # a CPU without instructions for it takes seconds for more
        return make.of(kind, channels, channels, 3, **kwargs), [
            make.normal(make.n(batch), channels, *size)
        ]

    return build


def _normalization(name: str, *args: Any) -> Any:
    def build(make: Making) -> Built:
        layer = make.of(getattr(make.torch.nn, name), *args)

        def apply(x: Any) -> Any:
            if hasattr(layer, "running_mean") and layer.running_mean is not None:
                # a training's statistics move with each call: not what is measured here
                layer.running_mean.zero_()
                layer.running_var.fill_(1)
            return layer(x)

        return apply, [make.normal(make.n(8), 32, 32, 32)]

    return build


def _bag(mode: str) -> Any:
    def build(make: Making) -> Built:
        n = make.n(1 << 14)
        offsets = make.torch.arange(0, n, 16).to(make.device)
        bag = make.torch.nn.functional.embedding_bag
        return lambda index, weight: bag(index, weight, offsets, mode=mode), [
            make.index(256, n),
            make.normal(256, 64),
        ]

    return build


def _embedding(**kwargs: Any) -> Any:
    def build(make: Making) -> Built:
        embed = make.torch.nn.functional.embedding
        return lambda index, weight: embed(index, weight, **kwargs), [
            make.index(256, make.n(1 << 13)),
            make.normal(256, 64),
        ]

    return build


def _loss(name: str, *shape: int, **kwargs: Any) -> Any:
    """A loss of torch.nn.functional between numbers and classes; `shape` follows the batch and the
    32 classes."""

    def build(make: Making) -> Built:
        loss = getattr(make.torch.nn.functional, name)
        batch = make.n(16 if shape else 8192)
        return lambda x, y: loss(x, y, **kwargs), [
            make.normal(batch, 32, *shape),
            make.index(32, batch, *shape),
        ]

    return build


def _weighted(make: Making) -> Built:
    loss, weight = make.torch.nn.functional.nll_loss, make.uniform(32)
    return lambda x, y: loss(x, y, weight), [
        make.normal(make.n(16), 32, 48, 48),
        make.index(32, make.n(16), 48, 48),
    ]


def _pairs(name: str, **kwargs: Any) -> Any:
    def build(make: Making) -> Built:
        loss = getattr(make.torch.nn.functional, name)
        return lambda x, y: loss(x, y, **kwargs), [
            make.normal(make.n(1 << 18)),
            make.uniform(make.n(1 << 18)),
        ]

    return build


def _dropout(make: Making) -> Built:
    return lambda x: make.torch.nn.functional.dropout(x, 0.3), [make.normal(make.n(1 << 18))]


def _rrelu(make: Making) -> Built:
    return lambda x: make.torch.nn.functional.rrelu(x, training=True), [
        make.normal(make.n(1 << 18))
    ]


def cases() -> List[Case]:
    """Layers in training mode."""
    found = []
    for size in (1, 2, 3):
        found += [
            Case("conv%dd" % size, _convolution(size), entry=r"\bConv%dd" % size),
            Case(
                "conv_transpose%dd" % size,
                _convolution(size, True),
                entry=r"\bConvTranspose%dd" % size,
            ),
        ]
    found += [
        Case("conv2d (depthwise)", _convolution(2, groups=32), entry=r"\bConv2d"),
        Case("conv2d (dilated, strided)", _convolution(2, stride=2, dilation=2), entry=r"\bConv2d"),
        Case("batch_norm", _normalization("BatchNorm2d", 32)),
        Case("instance_norm", _normalization("InstanceNorm2d", 32)),
        Case("group_norm", _normalization("GroupNorm", 8, 32)),
        Case("layer_norm", _normalization("LayerNorm", 32)),
        Case("rms_norm", _normalization("RMSNorm", 32)),
        Case("embedding", _embedding()),
        Case("embedding (scaled by frequency)", _embedding(scale_grad_by_freq=True)),
        Case("embedding (sparse gradient)", _embedding(sparse=True)),
        Case("embedding_bag (sum)", _bag("sum")),
        Case("embedding_bag (mean)", _bag("mean")),
        Case("embedding_bag (max)", _bag("max"), entry=r"EmbeddingBag"),
        Case("cross_entropy", _loss("cross_entropy")),
        Case("cross_entropy (image)", _loss("cross_entropy", 48, 48), entry=r"NLLLoss"),
        Case("nll_loss", _loss("nll_loss"), entry=r"NLLLoss"),
        Case("nll_loss2d", _loss("nll_loss", 48, 48), entry=r"NLLLoss"),
        Case("nll_loss2d (weighted)", _weighted, entry=r"NLLLoss"),
        Case("multi_margin_loss", _loss("multi_margin_loss")),
        Case("mse_loss", _pairs("mse_loss")),
        Case("smooth_l1_loss", _pairs("smooth_l1_loss")),
        Case("binary_cross_entropy_with_logits", _pairs("binary_cross_entropy_with_logits")),
        Case("kl_div", _pairs("kl_div", reduction="batchmean")),
        Case("dropout", _dropout, random=True),
        Case("rrelu", _rrelu, random=True),
    ]
    return found
