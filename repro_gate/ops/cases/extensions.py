"""Operators of torchvision and torch_scatter, where they are installed."""

from __future__ import annotations

from typing import Any, List, Tuple

from ..case import Built, Case, Making


def cases() -> Tuple[List[Case], List[str]]:
    """(cases, notes): one sentence for each package that is not here."""
    found: List[Case] = []
    notes: List[str] = []
    for name, listed in (("torchvision", _vision), ("torch_scatter", _scatter)):
        try:
            package = __import__(name)
            found += listed(package)
        except Exception as error:  # not installed, or built for another torch
            why = (
                "is not installed"
                if isinstance(error, ImportError) and error.name == name
                else "cannot be used: %s" % error
            )
            notes.append("%s %s" % (name, " ".join(why.split())[:200]))
    return found, notes


def _boxes(make: Making) -> Any:
    corners = make.uniform(make.n(512), 2) * 24
    return make.torch.cat([corners, corners + 4 + make.uniform(make.n(512), 2) * 8], 1)


def _vision(package: Any) -> List[Case]:
    ops = __import__("torchvision.ops").ops

    def pooled(name: str, *args: Any) -> Any:
        def build(make: Making) -> Built:
            boxes = make.torch.cat([make.index(4, make.n(512), 1).to(make.dtype), _boxes(make)], 1)
            function, image = getattr(ops, name), make.normal(4, 16, 40, 40)
            return lambda x: function(x, boxes, *args), [image]

        return build

    def deformed(make: Making) -> Built:
        weight, offset = make.normal(16, 8, 3, 3), make.normal(make.n(2), 18, 30, 30)
        return ops.deform_conv2d, [make.normal(make.n(2), 8, 32, 32), offset, weight]

    def suppressed(make: Making) -> Built:
        return lambda x, score: ops.nms(x, score, 0.5), [_boxes(make), make.uniform(make.n(512))]

    return [
        Case("roi_align", pooled("roi_align", 7), source="torchvision"),
        Case("roi_pool", pooled("roi_pool", 7), source="torchvision"),
        Case("ps_roi_align", pooled("ps_roi_align", 4), source="torchvision"),
        Case("ps_roi_pool", pooled("ps_roi_pool", 4), source="torchvision"),
        Case("deform_conv2d", deformed, source="torchvision"),
        Case("nms", suppressed, source="torchvision", backward=False),
    ]


def _scatter(package: Any) -> List[Case]:
    def scattered(kind: str) -> Any:
        def build(make: Making) -> Built:
            n = make.n(1 << 13)
            return lambda x, index: package.scatter(x, index, 0, dim_size=256, reduce=kind), [
                make.normal(n, 32),
                make.index(256, n),
            ]

        return build

    return [
        Case("scatter (%s)" % kind, scattered(kind), source="torch_scatter")
        for kind in ("sum", "mean", "max", "mul")
    ]
