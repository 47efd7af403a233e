"""Operators as torch dispatches them: which are passed over, which give unwritten memory, which
give a view; the mode that sees them."""

from __future__ import annotations

from typing import Any, Callable

ASIDE = (  # names begin so; they compute nothing
    "profiler.",
    "prim.",
    "c10d_functional.wait_tensor",
    "aten.detach",
    "aten.alias",
    "aten._local_scalar_dense",
    "aten.lift_fresh",
    "aten.is_same_size",
)
_EMPTY = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
    "resize_as_",
)
Dispatch = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def base(name: str) -> str:
    """Return `index_put_` of `aten.index_put_.default`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


def gives_unwritten(name: str) -> bool:
    """Return whether what comes out, or is added to it, is memory as it was."""
    return base(name) in _EMPTY


def is_view(function: Any) -> bool:
    """Return whether what comes out is an input's memory, and nothing is written."""
    schema = getattr(function, "_schema", None)
    if schema is None:
        return False  # one that takes functions (`torch.cond`)
    returns = schema.returns
    return (
        not schema.is_mutable
        and bool(returns)
        and all(item.alias_info is not None for item in returns)
    )


def is_mutable(function: Any) -> bool:
    """Return whether an operator writes an input. One that takes functions has no schema."""
    schema = getattr(function, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def form(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return what chooses among an operator's algorithms: its yes-or-no and word arguments that are
    not the default: `accumulate=True`."""
    schema = getattr(function, "_schema", None)
    chosen = []
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        value = (
            args[place]
            if place < len(args)
            else kwargs.get(argument.name, argument.default_value)
        )
        default = argument.default_value
        is_default = value == default or (value is False and default is None)
        if isinstance(value, (bool, str)) and not is_default:
            chosen.append(f"{argument.name}={value}")
    return ", ".join(chosen)[:100]


def mode(torch: Any, dispatched: Dispatch, aside: bool = False) -> Any:
    """Return a context in which `dispatched(function, args, kwargs)` gets each operator, and calls
    it.

    `aside`: compiling goes on, and operators that take functions (`torch.cond`) are dispatched as
    they are without it.
    """

    class Recording(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """Hands every operator to the record, and the record's own to torch."""

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return dispatched(function, args, kwargs or {})

    if aside:
        Recording.supports_higher_order_operators = True
        Recording.is_infra_mode = classmethod(lambda _: True)
    return Recording()
