"""Uses of factors and calls of operators, as a watched run notes them."""

from __future__ import annotations

from typing import Any

from repro_gate.trace.model import OperatorLine, Used


def use(factor: str, line: int, digest: str = "a", **more: Any) -> Used:
    """A line's own use; without a line, that of no line of the training."""
    given = {"process": "main", "step": 0, "source": "f", "file": "train.py" if line else ""}
    given |= {"call": "f()", "count": 1, "direct": True}
    return Used(**{**given, "factor": factor, "line": line, "digest": digest, **more})


def call(name: str, inputs: str, outputs: str, **more: Any) -> OperatorLine:
    """One call of an operator, in the forward."""
    given = {"process": "main", "count": 1, "phase": "forward", "node": "", "file": "net.py"}
    given |= {"line": 5, "simple": False, **more}
    return OperatorLine(op=name, inputs=(inputs,), outputs=(outputs,), **given)
