"""Pools, unpools, padding, interpolation and sampling of grids: their backward adds several
gradients to one place."""

from __future__ import annotations

from typing import Any, List

from ..case import Built, Case, Making


def _image(make: Making, dimensions: int) -> Any:
    """A batch of about 2^17 elements, or four times as many."""
    batch = make.n(2)
    return make.normal(
        *{1: (batch, 16, 4096), 2: (batch, 16, 64, 64), 3: (batch, 8, 16, 32, 16)}[dimensions]
    )


def _on(dimensions: int, name: str, *args: Any, **kwargs: Any) -> Any:
    """A function of torch.nn.functional on one image."""

    def build(make: Making) -> Built:
        function = getattr(make.torch.nn.functional, name)
        return lambda x: function(x, *args, **kwargs), [_image(make, dimensions)]

    return build


def _fractional(dimensions: int) -> Any:
    def build(make: Making) -> Built:
        function = getattr(make.torch.nn.functional, "fractional_max_pool%dd" % dimensions)
        image = _image(make, dimensions)
        samples = make.uniform(image.shape[0], image.shape[1], dimensions)
        return lambda x: function(x, 3, output_ratio=[0.7] * dimensions, _random_samples=samples), [
            image
        ]

    return build


def _unpool(dimensions: int) -> Any:
    """Unpooling of overlapping pools: one maximum is the maximum of several, so several values meet
    in one place."""

    def build(make: Making) -> Built:
        functional = make.torch.nn.functional
        image = _image(make, dimensions)
        pool, unpool = (
            getattr(functional, "max_%s%dd" % (kind, dimensions)) for kind in ("pool", "unpool")
        )
        pooled, where = pool(image.float(), 3, 2, return_indices=True)
        size = image.shape[2:]
        return lambda x, index: unpool(x, index, 3, 2, output_size=size), [
            pooled.to(make.dtype),
            where,
        ]

    return build


def _pad(dimensions: int, mode: str) -> Any:
    return _on(dimensions, "pad", [3, 3] * dimensions, mode=mode)


def _resized(dimensions: int, mode: str, scale: float) -> Any:
    kwargs = {} if mode in ("nearest", "nearest-exact", "area") else {"align_corners": False}
    return _on(dimensions, "interpolate", scale_factor=scale, mode=mode, **kwargs)


def _grid(dimensions: int, mode: str, padding: str) -> Any:
    def build(make: Making) -> Built:
        sample = make.torch.nn.functional.grid_sample
        image = _image(make, dimensions)
        if make.device == "cpu" and make.dtype in (make.torch.bfloat16, make.torch.float16):
            image = image[
                :, ::4
                # a CPU computes it one by one in a half precision, and takes seconds for more
                # channels
            ].contiguous()
        grid = make.uniform(image.shape[0], *image.shape[2:], dimensions) * 2.4 - 1.2
        return lambda x, y: sample(x, y, mode=mode, padding_mode=padding, align_corners=False), [
            image,
            grid,
        ]

    return build


def cases() -> List[Case]:
    """Each with its backward, which is what races where anything does."""
    found = [
        Case("avg_pool2d", _on(2, "avg_pool2d", 3, 2)),
        Case("avg_pool3d", _on(3, "avg_pool3d", 3, 2), entry=r"\bAvgPool3d"),
        Case("max_pool2d", _on(2, "max_pool2d", 3, 2)),
        Case("max_pool3d", _on(3, "max_pool3d", 3, 2), entry=r"\bMaxPool3d"),
        Case("adaptive_avg_pool2d", _on(2, "adaptive_avg_pool2d", 7), entry=r"AdaptiveAvgPool2d"),
        Case("adaptive_avg_pool3d", _on(3, "adaptive_avg_pool3d", 7), entry=r"AdaptiveAvgPool3d"),
        Case("adaptive_max_pool2d", _on(2, "adaptive_max_pool2d", 7), entry=r"AdaptiveMaxPool2d"),
        Case("adaptive_max_pool3d", _on(3, "adaptive_max_pool3d", 7)),
        Case("lp_pool2d", _on(2, "lp_pool2d", 2, 3)),
    ]
    for size in (2, 3):
        entry = r"FractionalMaxPool%dd" % size
        found.append(Case("fractional_max_pool%dd" % size, _fractional(size), entry=entry))
    for size in (1, 2, 3):
        found += [
            Case("max_unpool%dd" % size, _unpool(size), entry=r"MaxUnpool%dd" % size),
            Case(
                "reflection_pad%dd" % size, _pad(size, "reflect"), entry=r"ReflectionPad%dd" % size
            ),
            Case(
                "replication_pad%dd" % size,
                _pad(size, "replicate"),
                entry=r"ReplicationPad%dd" % size,
            ),
        ]
    found += [
        Case(
            "interpolate (%s)" % mode,
            _resized(size, mode, scale),
            entry=r"interpolate.*\b%s\b" % mode,
        )
        for mode, size, scale in (
            ("nearest", 2, 2.0),
            ("nearest-exact", 2, 2.0),
            ("area", 2, 0.5),
            ("linear", 1, 2.0),
            ("bilinear", 2, 1.7),
            ("bicubic", 2, 1.7),
            ("trilinear", 3, 1.5),
        )
    ]
    found.append(
        Case(
            "interpolate (bilinear, antialias)",
            _on(2, "interpolate", scale_factor=0.6, mode="bilinear", antialias=True),
        )
    )
    found += [
        Case(
            "grid_sample (%s, %s)" % (mode, padding), _grid(2, mode, padding), entry=r"grid_sample"
        )
        for mode, padding in (
            ("bilinear", "zeros"),
            ("bilinear", "border"),
            ("nearest", "zeros"),
            ("bicubic", "reflection"),
        )
    ]
    found.append(
        Case("grid_sample (3d, bilinear)", _grid(3, "bilinear", "zeros"), entry=r"grid_sample")
    )
    found.append(Case("pixel_shuffle", _on(2, "pixel_shuffle", 4)))
    found.append(Case("unfold (image to columns)", _on(2, "unfold", 3)))
    return found
