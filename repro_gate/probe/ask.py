"""Says what a training would run on here, before any training: `python ask.py` in its interpreter and environment, run by the gate.

Prints one JSON object with the facts that a trace carries (`facts.py`), read the same way. Unlike a trace, it may start CUDA.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict


def main() -> None:
    """Print the facts of this interpreter; without torch, those that hold without it."""
    from _repro_gate.probe import facts

    wanted: facts.Facts = dict(facts.BASIC)
    try:
        import torch
    except Exception as error:  # a torch that is there and broken must not look like none
        if not isinstance(error, ModuleNotFoundError):
            sys.stderr.write("torch cannot be imported: %s: %s\n" % (type(error).__name__, error))
    else:
        _start_cuda(torch)
        wanted.update(facts.facts(torch))
    print(json.dumps(_each(wanted)), flush=True)


def _start_cuda(torch: Any) -> None:
    try:
        if torch.cuda.is_available():
            torch.cuda.init()
    except Exception as error:
        sys.stderr.write("CUDA cannot be started: %s\n" % error)


def _each(wanted: Dict[str, Any]) -> Dict[str, str]:
    from _repro_gate.probe import facts

    found: Dict[str, str] = {}
    for name, how in wanted.items():
        try:
            found.update(facts.read({name: how}))
        except Exception as error:
            sys.stderr.write("%s cannot be read: %s\n" % (name, error))
    return found


if __name__ == "__main__":
    import os
    import types

    package = types.ModuleType("_repro_gate")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["_repro_gate"] = package
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(os.path.abspath(__file__))]
    main()
