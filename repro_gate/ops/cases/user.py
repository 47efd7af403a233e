"""A user's own operator: `--op module:function`.

The function takes nothing, or (torch, device, dtype), and returns what is measured: a function of
no arguments that returns tensors. It is called once for each arm and dtype, right after
`torch.manual_seed`, so what torch draws is the same in every process. Where the measured function
has an attribute `inputs`, a list of tensors, these are passed to it as arguments and its backward
is measured, too.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Callable, List, Sequence

from ..case import Built, Case, Making


def cases(wanted: Sequence[str], device: str) -> List[Case]:
    """One for each `module:function`; what cannot be imported is a row with its error."""
    return [_case(spec, device) for spec in wanted]


def _case(spec: str, device: str) -> Case:
    backward, dtypes = False, ("float32",)
    try:
        maker = _load(spec)
        if _takes_arguments(maker):
            dtypes = tuple(getattr(maker, "dtypes", ("float32", "float64", "bfloat16", "float16")))
            backward = True
    except Exception:  # said when the row is measured
        maker = None

    def build(make: Making) -> Built:
        torch, found = make.torch, maker or _load(spec)
        torch.manual_seed(int(make.generator.initial_seed()))
        function = found(torch, device, make.dtype) if _takes_arguments(found) else found()
        if not callable(function):
            raise TypeError(
                "%s must return a function of no arguments, not %s"
                % (spec, type(function).__name__)
            )
        inputs = list(getattr(function, "inputs", []))
        return function, inputs

    return Case(spec, build, source="user", dtypes=dtypes, backward=backward, sizes=1)


def _load(spec: str) -> Callable[..., Any]:
    module, _, name = spec.partition(":")
    if not name:
        raise ValueError("%r is not of the form module:function" % spec)
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError("%s is not a function" % spec)
    return found  # type: ignore[no-any-return]


def _takes_arguments(function: Callable[..., Any]) -> bool:
    return len(inspect.signature(function).parameters) >= 3
