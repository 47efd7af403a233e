"""Three steps of each optimizer, in each of its implementations: one loop, foreach, fused; and the
clipping of gradients."""

from __future__ import annotations

from typing import Any, List

from ..case import Built, Case, Making

_SHAPES = ((256, 256), (256,), (1024, 64), (64, 32, 3, 3))
_IMPLEMENTATIONS = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def _steps(name: str, implementation: str, **kwargs: Any) -> Any:
    def build(make: Making) -> Built:
        torch = make.torch

        def run(*tensors: Any) -> Any:
            half = len(tensors) // 2
            parameters = [torch.nn.Parameter(item.detach().clone()) for item in tensors[:half]]
            optimizer = getattr(torch.optim, name)(
                parameters, lr=0.01, **kwargs, **_IMPLEMENTATIONS[implementation]
            )
            for step in range(3):
                for parameter, gradient in zip(parameters, tensors[half:]):
                    parameter.grad = gradient * (step + 1)
                optimizer.step()
            return [item.detach() for item in parameters]

        shapes = [(make.n(shape[0]), *shape[1:]) for shape in _SHAPES]
        return run, [make.normal(*shape) for shape in shapes * 2]

    return build


def _clipped(foreach: bool) -> Any:
    def build(make: Making) -> Built:
        torch = make.torch

        def clip(*gradients: Any) -> Any:
            parameters = [torch.nn.Parameter(torch.zeros_like(item)) for item in gradients]
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient.clone()
            norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
            return [norm, *(parameter.grad for parameter in parameters)]

        return clip, [make.normal(make.n(shape[0]), *shape[1:]) for shape in _SHAPES]

    return build


def cases() -> List[Case]:
    """Forward only: an optimizer's step has no gradient."""
    found = []
    for name, kwargs in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("Adagrad", {})):
        found += [
            Case(
                "%s (%s)" % (name, kind),
                _steps(name, kind, **kwargs),
                source="optimizer",
                dtypes=("float32", "bfloat16"),
                backward=False,
            )
            for kind in _IMPLEMENTATIONS
        ]
    for name in ("RMSprop", "NAdam", "RAdam", "Adamax"):
        found.append(
            Case(
                "%s (foreach)" % name,
                _steps(name, "foreach"),
                source="optimizer",
                dtypes=("float32",),
                backward=False,
            )
        )
    for foreach in (False, True):
        kind = "foreach" if foreach else "loop"
        found.append(
            Case(
                "clip_grad_norm_ (%s)" % kind,
                _clipped(foreach),
                source="optimizer",
                dtypes=("float32",),
                backward=False,
            )
        )
    return found
