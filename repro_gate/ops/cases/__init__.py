"""The cases of the catalog, one file for each family; `catalog` puts those of a request
together."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ..case import Case
from . import (
    compiled,
    extensions,
    indexing,
    layers,
    optimizers,
    pooling,
    products,
    reductions,
    samples,
    sequence,
    user,
)

_FAMILIES = (indexing, pooling, layers, sequence, reductions, products, optimizers, compiled)


def catalog(torch: Any, device: str, request: Dict[str, Any]) -> Tuple[List[Case], List[str]]:
    """(cases, notes): a note says what could not be listed, and why. With `user` in the request,
    those functions alone."""
    own = request.get("user", [])
    if own:
        return user.cases(own, device), []
    found: List[Case] = [case for family in _FAMILIES for case in family.cases()]
    notes: List[str] = []
    if device == "cuda":
        notes += ["%s %s" % item for item in sequence.NOT_ON_CUDA.items()]
        found = [case for case in found if case.name not in sequence.NOT_ON_CUDA]
    wanted = request.get("cases")
    # importing the samples takes seconds
    sampled = wanted is None or any(name.startswith("opinfo/") for name in wanted)
    for listed, said in (extensions.cases(), samples.cases(torch, device) if sampled else ([], [])):
        found += listed
        notes += said
    return found, notes
