"""What a run finds around it: the order of its environment.

Varied, the environment comes in the reverse of its order.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from ...trace.format import CONFIG_VARIABLE
from .use import Uses


def install(uses: Uses) -> None:
    """Reverse the environment where that is asked for."""
    if "environment" in uses.vary:
        _reverse()


def _reverse() -> None:
    """Once in each tree of processes: a child that got the reversed one keeps it, and knows it by what stands first."""
    variables: Dict[Any, Any] = vars(os.environ)["_data"]
    name = os.fsencode(CONFIG_VARIABLE) if os.name == "posix" else CONFIG_VARIABLE
    if next(iter(variables), name) == name:
        return
    reverse = list(variables.items())[::-1]
    variables.clear()
    variables[name] = b""
    variables.update(reverse)
